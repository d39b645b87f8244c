"""Reading the unflushed tail of a WAL."""

from __future__ import annotations

from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import wal_entry_path
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.codec import WalCodec, WalEntry


def find_tail(store: ObjectStore, region_id: RegionId, suffix: str, known_wal_id: int) -> int:
    """Return the last WAL entry by probing upward, one existence check per entry.

    Args:
        store: The table's store.
        region_id: Whose WAL.
        suffix: File suffix of the region's codec.
        known_wal_id: An entry up to which nothing needs to be probed, for example the replay
            pointer. Never a hint when rows are to be replayed: a hint may be wrong.

    Returns:
        The last consecutive entry after ``known_wal_id``, or ``known_wal_id`` itself.
    """
    tail = known_wal_id
    while store.head(wal_entry_path(region_id, tail + 1, suffix)) is not None:
        tail += 1
    return tail


def read_tail(
    store: ObjectStore,
    region_id: RegionId,
    codec: WalCodec,
    replay_after_wal_id: int,
    wal_id_last_seen: int,
    concurrency: int,
) -> list[WalEntry]:
    """Read every entry after the replay pointer, in order.

    Args:
        store: The table's store.
        region_id: Whose WAL.
        codec: The region's codec.
        replay_after_wal_id: Entries up to here are in flushed MemTables.
        wal_id_last_seen: Somebody once saw this entry, so it must be there.
        concurrency: Entries read at once.

    Returns:
        The entries, ascending without a hole; empty if everything is flushed.

    Raises:
        CorruptionError: An entry is missing at or below ``wal_id_last_seen`` (replaying on would
            silently drop all later rows), or an entry cannot be read.
    """
    tail = find_tail(store, region_id, codec.suffix, replay_after_wal_id)
    if tail < wal_id_last_seen:
        raise CorruptionError(
            "the WAL has a hole: an entry that was seen before is missing",
            remedy="restore the missing entry from a backup or a versioned bucket; replaying without it loses rows",
            region_id=str(region_id),
            missing_wal_id=tail + 1,
            replay_after_wal_id=replay_after_wal_id,
            wal_id_last_seen=wal_id_last_seen,
        )
    positions = range(replay_after_wal_id + 1, tail + 1)
    return map_concurrently(lambda wal_id: codec.read(store, region_id, wal_id), positions, concurrency)
