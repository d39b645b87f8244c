"""Reading the unflushed tail of a WAL."""

from __future__ import annotations

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import WAL_SUFFIXES, wal_entry_path
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal.entry import EntryShape, WalCodec, WalEntry

_SINGLE_PROBES = 16
"""Entries looked for one by one before several are looked for at once: most tails are short."""
_RUN_PER_THREAD = 8
"""Entries that each thread fetches before new threads are started."""
_LARGE_BYTES = 1024 * 1024
"""Mean length of entries from which reading several local files at once pays."""
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


def read_tail(  # noqa: PLR0913  (where the tail begins, and how to read it)
    store: ObjectStore,
    region_id: RegionId,
    codec: WalCodec,
    replay_after_wal_id: int,
    wal_id_last_seen: int,
    concurrency: int,
    shape: EntryShape | None = None,
) -> list[WalEntry]:
    """Read every entry after the replay pointer, in order.

    Entries are read without looking first whether they are there: the one that is missing is the end.

    Args:
        store: The table's store.
        region_id: Whose WAL.
        codec: The region's codec.
        replay_after_wal_id: Entries up to here are in flushed MemTables.
        wal_id_last_seen: Somebody once saw this entry, so it must be there.
        concurrency: Entries fetched at once, where fetching takes longer than reading what came.
        shape: The columns that entries most probably have.

    Returns:
        The entries, ascending without a hole; empty if everything is flushed.

    Raises:
        CorruptionError: An entry is missing at or below ``wal_id_last_seen`` (replaying on would
            silently drop all later rows), an entry cannot be read, or the WAL holds entries of
            another codec.
    """
    entries: list[WalEntry] = []
    fetched_bytes = 0
    while True:
        first = replay_after_wal_id + len(entries) + 1
        known = wal_id_last_seen - first + 1
        width = _width(store, known, len(entries), fetched_bytes, concurrency)
        found = _fetch_run(store, region_id, codec, range(first, first + width), concurrency)
        for data in found:
            entries.append(codec.decode(store, region_id, first, data, shape))
            fetched_bytes += len(data)
            first += 1
        if len(found) < width:
            break
    tail = replay_after_wal_id + len(entries)
    _check_tail(store, region_id, codec, replay_after_wal_id, wal_id_last_seen, tail)
    return entries


def _width(store: ObjectStore, known: int, read: int, read_bytes: int, concurrency: int) -> int:
    """Return how many entries to fetch at once.

    A thread costs more than fetching a small local file. Elsewhere a request takes most of the time,
    so entries that are known to exist are fetched together, and beyond them as many as were found.
    """
    if store.kind is StoreKind.LOCAL and read_bytes < _LARGE_BYTES * max(1, read):
        return 1
    return max(1, min(_RUN_PER_THREAD * concurrency, max(known, read)))


def _fetch_run(
    store: ObjectStore, region_id: RegionId, codec: WalCodec, positions: range, concurrency: int
) -> list[bytes]:
    """Return the bytes of consecutive entries, up to the first that does not exist."""

    def fetch(wal_id: int) -> bytes | None:
        try:
            return store.get(wal_entry_path(region_id, wal_id, codec.suffix))
        except ObjectNotFoundError:
            return None

    if len(positions) == 1:
        data = fetch(positions[0])
        return [] if data is None else [data]
    found = map_concurrently(fetch, positions, concurrency)
    run: list[bytes] = []
    for number, data in enumerate(found):
        present = data
        if present is None and any(later is not None for later in found[number:]):
            present = fetch(positions[number])  # Written while the others were fetched, or a hole.
        if present is None:
            break
        run.append(present)
    return run


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
    _check_tail(store, region_id, codec, replay_after_wal_id, wal_id_last_seen, tail)
    return range(replay_after_wal_id + 1, tail + 1)


def _check_tail(
    store: ObjectStore,
    region_id: RegionId,
    codec: WalCodec,
    replay_after_wal_id: int,
    wal_id_last_seen: int,
    tail: int,
) -> None:
    """Return if a tail can be all of it.

    Raises:
        CorruptionError: As for ``tail_positions``.
    """
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
