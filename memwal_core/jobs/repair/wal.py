"""WAL entries that must be replayed and cannot be: which they are, and what stands in their place."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.failpoints import Failpoint, Failpoints
from memwal_core.format.paths import parse_numbered_name, wal_directory, wal_entry_path
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.outcome import CheckLease
from memwal_core.region import RegionManifest, claim
from memwal_core.region.holes import holes
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import WalAppender, codec_of_region, damage_of_entry
from memwal_core.writer.claim.takeover import note_release
from memwal_core.writer.layout import TableLayout

REPAIR_CLAIMED = Failpoint("repair.claimed")
REPAIR_DELETED = Failpoint("repair.deleted")

_AT_ONCE = 4
"""Entries in memory at the same time."""
_MOST_MISSING = 1000
"""Missing entries that are believed; more than that is a damaged counter."""


def damaged_entries(store: ObjectStore, manifest: RegionManifest) -> dict[int, str]:
    """Read every entry that no flush has taken; return WAL entry -> what is wrong with it, ascending.

    Raises:
        CorruptionError: The manifest has seen an entry far beyond those that there are.
    """
    region_id, suffix = manifest.region_id, codec_of_region(manifest, {}).suffix
    names = (info.path.rpartition("/")[2] for info in store.list_objects(wal_directory(region_id)))
    there = sorted(each for name in names if (each := _position(name, suffix)) > manifest.replay_after_wal_id)
    end = max([manifest.wal_id_last_seen, *there[-1:]]) + 1
    gaps = list(holes(there, manifest.replay_after_wal_id + 1, end))
    if sum(map(len, gaps)) > _MOST_MISSING:
        raise CorruptionError(
            "a WAL lacks more entries than any accident explains",
            remedy="follow docs/runbooks/corrupt-region-manifest.md",
            region_id=str(region_id),
            replay_after_wal_id=manifest.replay_after_wal_id,
            wal_id_last_seen=manifest.wal_id_last_seen,
            entries=len(there),
        )
    causes = map_concurrently(partial(damage_of_entry, store, region_id, suffix=suffix), there, _AT_ONCE)
    missing = [(wal_id, "it is missing") for gap in gaps for wal_id in gap]
    unreadable = [(wal_id, cause) for wal_id, cause in zip(there, causes, strict=True) if cause]
    return dict(sorted(missing + unreadable))


def put_fences(
    opened: OpenTable, manifest: RegionManifest, entries: Collection[int], guard: CheckLease, failpoints: Failpoints
) -> None:
    """Claim a region, and put an entry without rows in the place of others, which are deleted.

    The claim comes first: a writer that still lives would refer to these entries in its next flush. Entries that are
    sound or flushed by then stay. A run that dies between deleting and putting leaves a hole, which the next one fills.

    Raises:
        ConflictError: Another process claimed the region since ``manifest`` was read. Repair again.
    """
    table, region_id = opened.base, manifest.region_id
    state = table.state()
    codec = codec_of_region(manifest, state.column_ids)
    storage_version = TableLayout.of(state).storage_version
    guard()
    claimed = claim(opened.manifests, region_id, expected_epoch=manifest.writer_epoch)
    failpoints.hit(REPAIR_CLAIMED)
    for wal_id in sorted(entries):
        # Its writer may have flushed it from memory before it was fenced, and a person may have put it back.
        if wal_id <= claimed.replay_after_wal_id or not damage_of_entry(table.store, region_id, wal_id, codec.suffix):
            continue
        guard()
        table.store.delete(wal_entry_path(region_id, wal_id, codec.suffix))
        failpoints.hit(REPAIR_DELETED)
        WalAppender(
            table.store,
            region_id,
            codec,
            writer_epoch=claimed.writer_epoch,
            last_wal_id=wal_id - 1,
            storage_version=storage_version,
            ids=table.ids,
        ).append_fence()
    note_release(table.store, region_id, claimed.writer_epoch, lambda: True)


def _position(name: str, suffix: str) -> int:
    """Return the position of a WAL entry; 0 for a name that is none of this codec."""
    try:
        return parse_numbered_name(name, suffix)
    except InvalidRequestError:
        return 0
