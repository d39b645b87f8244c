"""Read what a region snapshot is made of: every region's manifest, and where its WAL really ends."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState, read_snapshot
from memwal_core.clock import Clock
from memwal_core.errors import CorruptionError
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, manifest_directory, region_directory
from memwal_core.ids import RegionId
from memwal_core.jobs.snapshot.plan import SnapshotRegion, SnapshotSurvey
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import find_tail


def survey_regions(
    table: BaseTable, manifests: ManifestStore, clock: Clock, concurrency: int
) -> tuple[SnapshotSurvey, TableState]:
    """Read all regions, then the table version that holds the present snapshot, for the strict commit that follows.

    In this order the version knows every spec that a region may belong to. No region is ever left out silently:
    one that cannot be read, or a known one that has vanished, is a ``CorruptionError``. Costs one listing and a
    handful of requests per region.
    """
    taken = clock.now()
    listed = manifests.region_ids()
    found = manifests.load_many(listed, concurrency)
    _require_nothing_lost(table.store, listed, found)
    state = table.state()
    details = table.require_mem_wal(state)
    stored = read_snapshot(table, state)
    found += _require_known(manifests, found, {*details.merged_generations, *_regions_of(stored)})
    found.sort(key=lambda manifest: manifest.region_id)
    tails = map_concurrently(lambda manifest: observed_tail(table.store, manifest), found, concurrency)
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


def _require_nothing_lost(store: ObjectStore, listed: Sequence[RegionId], found: Sequence[RegionManifest]) -> None:
    """Refuse a region that lost its manifests; one that is being created has a directory without data."""
    for region_id in sorted(set(listed) - {manifest.region_id for manifest in found}):
        own = f"{manifest_directory(region_id)}/"
        data = [info.path for info in store.list_objects(region_directory(region_id)) if not info.path.startswith(own)]
        if data:
            raise CorruptionError(
                "a region has data but no manifest",
                remedy="run `memwal doctor`; the snapshot stays as it is until the region can be read",
                region_id=str(region_id),
                objects=len(data),
                example=data[0],
            )


def _require_known(
    manifests: ManifestStore, found: Sequence[RegionManifest], known: Collection[RegionId]
) -> list[RegionManifest]:
    """Return the regions that the version knows but the listing did not have; refuse if one of them does not exist."""
    missing = sorted(set(known) - {manifest.region_id for manifest in found})
    late = manifests.load_many(missing)
    vanished = set(missing) - {manifest.region_id for manifest in late}
    if vanished:
        raise CorruptionError(
            "regions that the table knows no longer exist",
            remedy="run `memwal doctor` and restore their directories; the snapshot stays as it is until then",
            regions=len(vanished),
            example=str(min(vanished)),
        )
    return late


def _regions_of(stored: pa.Table | None) -> list[RegionId]:
    if stored is None:
        return []
    return [RegionId(uuid.UUID(bytes=raw)) for raw in stored.column("region_id").to_pylist()]
