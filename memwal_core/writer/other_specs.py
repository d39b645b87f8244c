"""No key waits in regions of two specs: readers would show it twice, and the merge that comes last would win.

Whoever brings rows claims a region first and looks then, so of two writers with different specs at least one sees the
other. Regions that were made by hand, without a spec, are left to those who made them.
"""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.base_table import BaseTable, TableState
from memwal_core.errors import ConflictError, FencedError
from memwal_core.format.paths import wal_entry_path
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.region.spec import MANUAL_SPEC_ID
from memwal_core.settings.writer import Takeover
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import codec_of_region, find_tail, rows_wait_since
from memwal_core.writer.claim.takeover import read_releases, require_no_live_writer
from memwal_core.writer.flush_region import flush_region

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class OtherSpecs:
    """Looks at the regions of other specs than the one that a writer follows.

    Attributes:
        takeover: Whether their writers that seem alive are left alone with an error, or fenced.
    """

    table: BaseTable
    takeover: Takeover

    def require_rest(self, state: TableState, spec_id: int) -> None:
        """Refuse to write by a spec while rows wait in regions of others, or their writers may bring more.

        A writer that did not release its region is treated as for a region of one's own: left alone while it seems
        alive, or fenced. One that was fenced without an entry in the WAL may wake up and write: it is fenced with one.

        Args:
            state: Read after the writer has claimed a region.
            spec_id: Of the writer.

        Raises:
            ConflictError: Something waits, or a writer seems alive. Give the claimed regions back; try again later.
        """
        details = self.table.require_mem_wal(state)
        if all(spec.spec_id == spec_id for spec in details.region_specs):
            return
        manifests = ManifestStore(self.table.store, self.table.ids, settings=self.table.settings.storage)
        others = [
            manifest
            for manifest in manifests.load_many(manifests.region_ids())
            if manifest.region_spec_id not in (MANUAL_SPEC_ID, spec_id)
        ]
        reasons = map_concurrently(
            lambda each: self._in_use(manifests, each, details.merged_generation(each.region_id)),
            others,
            self.table.settings.storage.concurrency,
        )
        busy = [(each, reason) for each, reason in zip(others, reasons, strict=True) if reason]
        if busy:
            raise ConflictError(
                "rows wait in regions of another region spec, and may have the same keys",
                remedy="run `memwal checkpoint`, which flushes and merges what waits, then write again",
                table=self.table.uri,
                spec_id=spec_id,
                other_specs=sorted({each.region_spec_id for each, _ in busy}),
                regions=len(busy),
                first=[f"{each.region_id}: {reason}" for each, reason in busy[:_SHOWN]],
            )

    def _in_use(self, manifests: ManifestStore, manifest: RegionManifest, merged: int) -> str:
        """Return why a region is not at rest; empty if it is, from then on."""
        store, epoch = self.table.store, manifest.writer_epoch
        # In this order: what a released epoch brought is there, and the next one shows in a newer manifest.
        releases = read_releases(store, manifest.region_id)
        if not manifests.is_newest(manifest):
            return "its manifest has just changed"
        if any(each.generation > merged for each in manifest.flushed_generations):
            return "flushed MemTables are not merged"
        if rows_wait_since(store, manifest) is not None:
            return "rows of its WAL are not flushed"
        is_released = releases.newest == epoch
        if is_released and (not releases.missing(1, epoch) or _ends_with(store, manifest, epoch)):
            return ""
        if not is_released and self.takeover is Takeover.FAIL:
            quiet_s = self.table.settings.writer.takeover_quiet_s
            require_no_live_writer(store, manifest, self.table.clock.now(), quiet_s)
        return self._fence(manifest)

    def _fence(self, manifest: RegionManifest) -> str:
        try:
            flush = flush_region(self.table, manifest.region_id, expected_epoch=manifest.writer_epoch, with_fence=True)
        except FencedError:
            return "a writer has just claimed it"
        return "rows of its WAL were flushed just now" if flush.generations else ""


def _ends_with(store: ObjectStore, manifest: RegionManifest, epoch: int) -> bool:
    """Tell whether the last WAL entry is of an epoch: writers of older ones find it where they would write."""
    codec, region_id = codec_of_region(manifest, {}), manifest.region_id
    tail = find_tail(store, region_id, codec.suffix, manifest.replay_after_wal_id)
    exists = store.head(wal_entry_path(region_id, tail, codec.suffix)) is not None if tail else False
    return exists and codec.read(store, region_id, tail).writer_epoch == epoch
