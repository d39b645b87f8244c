"""Read the signs of life of regions: unflushed rows, and when their writer was last heard of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from memwal_core.base_table import BaseTable, unchanged_regions
from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.paths import manifest_path, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.jobs.flush_idle.plan import IdleBounds, RegionSigns
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import ArrowCodec, codec_of_region, find_tail, rows_wait_since
from memwal_core.writer.claim.takeover import read_releases


@dataclass(frozen=True, slots=True)
class SignReader:
    """Reads one table's regions.

    A region whose rows are all flushed, and which has not changed since the region snapshot, costs nothing. Another one
    costs its manifest and one request more, two if no row waits, or its rows are young. Only where rows have waited
    long enough is their writer looked for.

    Attributes:
        now: Wall time in UTC.
    """

    table: BaseTable
    manifests: ManifestStore
    bounds: IdleBounds
    now: datetime
    concurrency: int

    def survey(self, regions: Collection[RegionId] = ()) -> list[RegionSigns]:
        """Read some regions, or all.

        Raises:
            InvalidRequestError: The table has no such region.
        """
        existing = self.manifests.region_ids()
        unknown = sorted(str(region) for region in regions if region not in existing)
        if unknown:
            raise InvalidRequestError(
                "the table has no such region", remedy="choose from `memwal status`", unknown=unknown
            )
        chosen = [each for each in existing if not regions or each in regions]
        rows = unchanged_regions(self.table, self.table.state()) if len(chosen) > 1 else {}
        flushed = {each: row for each, row in rows.items() if row.replay_after_wal_id == row.known_wal_id}

        def signs_of(region_id: RegionId) -> RegionSigns:
            row = flushed.get(region_id)
            return self.signs_of(region_id) if row is None else RegionSigns(region_id, row.writer_epoch)

        return map_concurrently(signs_of, chosen, self.concurrency)

    def signs_of(self, region_id: RegionId) -> RegionSigns:
        """Read one region; damage becomes its ``problem``."""
        try:
            return self._signs(self.manifests.load(region_id))
        except ObjectNotFoundError:
            return RegionSigns(region_id)  # It is being created, so nothing was written to it.
        except CorruptionError as error:
            return RegionSigns(region_id, problem=str(error))

    def _signs(self, manifest: RegionManifest) -> RegionSigns:
        signs = RegionSigns(manifest.region_id, manifest.writer_epoch)
        is_sealed = manifest.status is RegionStatus.SEALED
        waiting_since = rows_wait_since(self.table.store, manifest)
        signs = replace(signs, waiting_since=waiting_since)
        if waiting_since is None or max(0.0, (self.now - waiting_since).total_seconds()) < self.bounds.min_age_s:
            return signs
        if read_releases(self.table.store, manifest.region_id).newest == manifest.writer_epoch:
            return replace(signs, released=True)
        known = max(manifest.replay_after_wal_id + 1, manifest.wal_id_last_seen)
        suffix = codec_of_region(manifest, {}).suffix
        tail = find_tail(self.table.store, manifest.region_id, suffix, known, self.concurrency)
        paths = (wal_entry_path(manifest.region_id, tail, suffix), manifest_path(manifest.region_id, manifest.version))
        found = [info.modified for path in paths if (info := self.table.store.head(path)) is not None]
        is_ours = is_sealed or self._claimed_by_us(manifest, tail)
        return replace(signs, last_sign=max(found, default=None), is_ours=is_ours)

    def _claimed_by_us(self, manifest: RegionManifest, tail: int) -> bool:
        """Tell whether the newest entry of an ``arrow`` WAL is by a writer of ours that has the present epoch."""
        try:
            entry = ArrowCodec({}).read(self.table.store, manifest.region_id, tail)
        except CorruptionError:
            return False  # Replaying it will tell; until then the longer time holds.
        return bool(entry.attempt) and entry.writer_epoch == manifest.writer_epoch
