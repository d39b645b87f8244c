"""Read what a region snapshot is made of: every region's manifest, and where its WAL really ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memwal_core.base_table import BaseTable, TableState, read_snapshot, unchanged_regions
from memwal_core.clock import Clock
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.snapshot.plan import SnapshotRegion, SnapshotSurvey
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.region.census import Census, CensusTaker, DamagedRegion
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import find_tail


def survey_regions(
    table: BaseTable, manifests: ManifestStore, clock: Clock, concurrency: int, sharing: Sharing | None = None
) -> tuple[SnapshotSurvey, TableState]:
    """Read all regions, then the table version that holds the present snapshot, for the strict commit that follows.

    In this order the version knows every spec that a region may belong to. No region is ever left out silently: a
    damaged one keeps its row of the stored snapshot, and then the new snapshot claims the age of the stored one, for
    which that row is right. Regions that have not changed since the stored snapshot keep their rows, too, unread: it
    costs one request for each thousand objects below ``_mem_wal/``, and a handful for each region that has changed.
    """
    taken = clock.now()
    shared = _SharedSurvey(sharing)
    taker = CensusTaker(table.store, manifests, concurrency, shared.read if sharing is not None else None)
    unchanged = unchanged_regions(table, table.state())
    census = taker.take((), lambda _: unchanged)
    state = table.state()
    details = table.require_mem_wal(state)
    stored = read_snapshot(table, state)
    rows = snapshot_manifests(stored) if stored is not None else ()
    census = census.with_known(taker, details.merged_generations, rows)
    kept = [each for each in rows if each.region_id in census.damaged]
    found = sorted([*census.manifests, *kept], key=lambda manifest: manifest.region_id)

    def tail_of(manifest: RegionManifest) -> int:
        if manifest.region_id in census.damaged:
            return manifest.wal_id_last_seen
        if unchanged.get(manifest.region_id) is manifest:
            return manifest.known_wal_id
        known = shared.tails.get(manifest.region_id)
        if known is not None:
            return known
        return observed_tail(table.store, manifest)

    tails = map_concurrently(tail_of, found, concurrency)
    survey = SnapshotSurvey(
        table_uri=table.uri,
        version=state.version,
        taken=taken,
        regions=tuple(SnapshotRegion(manifest, tail) for manifest, tail in zip(found, tails, strict=True)),
        specs=details.region_specs,
        stored=stored,
        stored_inline=details.inline_snapshots is not None,
        stored_ts_millis=details.snapshot_ts_millis,
        stored_regions=details.num_regions,
        parked={region_id: str(each.error) for region_id, each in census.damaged.items()},
    )
    return survey, state


class _SharedSurvey:
    """Reads manifests and ends of WALs together, region by region, wherever the run does its work."""

    def __init__(self, sharing: Sharing | None) -> None:
        self._sharing = sharing
        self.tails: dict[RegionId, int] = {}

    def read(self, region_ids: Sequence[RegionId]) -> Census:
        sharing = self._sharing
        assert sharing is not None  # noqa: S101 - otherwise the census is taken here
        sharing.choose(Work(regions=len(region_ids)))
        found = sharing.run("survey regions", survey_share, sharing.divide(region_ids))
        manifests: list[RegionManifest] = []
        damaged: dict[RegionId, DamagedRegion] = {}
        for each in found:
            manifests.extend(each.census.manifests)
            damaged.update(each.census.damaged)
            self.tails.update(each.tails)
        return Census(tuple(manifests), damaged)


@dataclass(frozen=True, slots=True)
class SurveyedShare:
    """Some regions, and the last WAL entry of each that can be read."""

    census: Census
    tails: Mapping[RegionId, int]


def survey_share(context: JobContext, region_ids: Sequence[RegionId]) -> SurveyedShare:
    """Read the manifests of some regions, and then where their WALs end."""
    concurrency, store = context.settings.storage.concurrency, context.base.store
    census = CensusTaker(store, context.manifests, concurrency).read(region_ids)
    tails = map_concurrently(lambda manifest: observed_tail(store, manifest), census.manifests, concurrency)
    regions = [manifest.region_id for manifest in census.manifests]
    return SurveyedShare(census, dict(zip(regions, tails, strict=True)))


def observed_tail(store: ObjectStore, manifest: RegionManifest) -> int:
    """Return a region's last WAL entry, probing from the hint or the replay pointer, whichever is higher.

    Entries before them may be deleted.
    """
    known = max(manifest.wal_id_last_seen, manifest.replay_after_wal_id)
    # Regions of the lance codec are always SEALED (decision 0002); Lance may seal its own, too.
    suffixes = (LANCE_WAL_SUFFIX, ARROW_WAL_SUFFIX)
    for suffix in suffixes if manifest.status is RegionStatus.SEALED else reversed(suffixes):
        tail = find_tail(store, manifest.region_id, suffix, known)
        if tail > known:
            return tail
    return known
