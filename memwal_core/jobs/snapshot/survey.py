"""Read what a region snapshot is made of: every region's manifest, and where its WAL really ends."""

from __future__ import annotations

from memwal_core.base_table import BaseTable, TableState, read_snapshot
from memwal_core.clock import Clock
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX
from memwal_core.jobs.snapshot.plan import SnapshotRegion, SnapshotSurvey
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.region.census import CensusTaker
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import find_tail


def survey_regions(
    table: BaseTable, manifests: ManifestStore, clock: Clock, concurrency: int
) -> tuple[SnapshotSurvey, TableState]:
    """Read all regions, then the table version that holds the present snapshot, for the strict commit that follows.

    In this order the version knows every spec that a region may belong to. No region is ever left out silently: a
    damaged one keeps its row of the stored snapshot, and then the new snapshot claims the age of the stored one, for
    which that row is right. Costs two listings and a handful of requests per region.

    Raises:
        UnavailableError: Storage failed. Try again.
    """
    taken = clock.now()
    taker = CensusTaker(table.store, manifests, concurrency)
    census = taker.take()
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
