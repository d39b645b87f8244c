"""Reading the unflushed tail of a WAL."""

from __future__ import annotations

from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import WAL_SUFFIXES, wal_entry_path
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal.entry import WalCodec, WalEntry

_SINGLE_PROBES = 16
"""Entries looked for one by one before several are looked for at once: most tails are short."""
_MAX_RUN = 64
"""Entries that a thread reads one after the other: handing over a small one takes longer than reading it."""


def find_tail(store: ObjectStore, region_id: RegionId, suffix: str, known_wal_id: int, concurrency: int = 1) -> int:
    """Return the last WAL entry by probing upward, one existence check per entry.

    Args:
        store: The table's store.
        region_id: Whose WAL.
        suffix: File suffix of the region's codec.
        known_wal_id: An entry up to which nothing needs to be probed, for example the replay
            pointer. Never a hint when rows are to be replayed: a hint may be wrong.
        concurrency: Entries probed at once where the tail turns out to be long; positions beyond
            its end are then probed, too, but never more than were found.

    Returns:
        The last consecutive entry after ``known_wal_id``, or ``known_wal_id`` itself.
    """
    tail = known_wal_id
    while True:
        found = tail - known_wal_id
        window = 1 if found < _SINGLE_PROBES else min(concurrency, found)
        positions = range(tail + 1, tail + 1 + window)
        exist = map_concurrently(lambda wal_id: _exists(store, region_id, suffix, wal_id), positions, concurrency)
        if all(exist):
            tail += window
            continue
        tail += exist.index(False)
        if any(exist[exist.index(False) :]) and _exists(store, region_id, suffix, tail + 1):
            continue  # Written while the window was probed: the first answers are out of date.
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
            silently drop all later rows), an entry cannot be read, or the WAL holds entries of
            another codec.
    """
    positions = tail_positions(store, region_id, codec, replay_after_wal_id, wal_id_last_seen, concurrency)
    return read_entries(store, region_id, codec, positions, concurrency)


def tail_positions(
    store: ObjectStore,
    region_id: RegionId,
    codec: WalCodec,
    replay_after_wal_id: int,
    wal_id_last_seen: int,
    concurrency: int,
) -> range:
    """Return where the entries after the replay pointer are, without reading them.

    Args:
        store: As for ``read_tail``.
        region_id: As for ``read_tail``.
        codec: As for ``read_tail``.
        replay_after_wal_id: As for ``read_tail``.
        wal_id_last_seen: As for ``read_tail``.
        concurrency: Entries looked for at once, where that takes requests.

    Raises:
        CorruptionError: As for ``read_tail``, except that no entry is read.
    """
    # Looking for a local file takes a tenth of the time that it takes to have a thread do so.
    probes = 1 if store.kind is StoreKind.LOCAL else concurrency
    tail = find_tail(store, region_id, codec.suffix, replay_after_wal_id, probes)
    _refuse_other_codec(store, region_id, codec, {replay_after_wal_id + 1, tail + 1})
    if tail < wal_id_last_seen:
        raise CorruptionError(
            "the WAL has a hole: an entry that was seen before is missing",
            remedy="restore the missing entry from a backup or a versioned bucket; replaying without it loses rows",
            region_id=str(region_id),
            missing_wal_id=tail + 1,
            replay_after_wal_id=replay_after_wal_id,
            wal_id_last_seen=wal_id_last_seen,
        )
    return range(replay_after_wal_id + 1, tail + 1)


def read_entries(
    store: ObjectStore, region_id: RegionId, codec: WalCodec, positions: range, concurrency: int
) -> list[WalEntry]:
    """Read entries that are known to exist, in order.

    Args:
        store: The table's store.
        region_id: Whose WAL.
        codec: The region's codec.
        positions: Which entries.
        concurrency: Entries read at once.

    Raises:
        CorruptionError: An entry is gone or cannot be read.
    """
    length = max(1, min(_MAX_RUN, len(positions) // (2 * max(1, concurrency))))
    runs = [positions[start : start + length] for start in range(0, len(positions), length)]

    def read_run(run: range) -> list[WalEntry]:
        return [codec.read(store, region_id, wal_id) for wal_id in run]

    return [entry for entries in map_concurrently(read_run, runs, concurrency) for entry in entries]


def _exists(store: ObjectStore, region_id: RegionId, suffix: str, wal_id: int) -> bool:
    return store.head(wal_entry_path(region_id, wal_id, suffix)) is not None


def _refuse_other_codec(store: ObjectStore, region_id: RegionId, codec: WalCodec, wal_ids: set[int]) -> None:
    """Look where a writer of the other codec would have written: behind a pointer that it, too, reads.

    Raises:
        CorruptionError: It has.
    """
    for suffix in WAL_SUFFIXES:
        for wal_id in sorted(wal_ids):
            if suffix != codec.suffix and _exists(store, region_id, suffix, wal_id):
                raise CorruptionError(
                    "the WAL holds entries of two codecs, so their order is unknown",
                    remedy="stop all writers of the region and keep both files; find out who wrote the second kind",
                    region_id=str(region_id),
                    wal_id=wal_id,
                    expected=codec.suffix,
                    found=suffix,
                )
