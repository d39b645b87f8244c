"""Reading the unflushed tail of a WAL."""

from __future__ import annotations

from memwal_core.errors import CorruptionError, DamagedError, ObjectNotFoundError
from memwal_core.format.paths import WAL_SUFFIXES, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal.entry import EntryShape, WalCodec, WalEntry

_SINGLE_PROBES = 16
"""Entries probed one by one before several are probed at once: most tails are short."""
_RUN_PER_THREAD = 8
"""Entries that each thread fetches before new threads are started."""
_LARGE_BYTES = 1024 * 1024
"""Mean length of entries from which reading several local files at once pays."""
_MAX_RUN = 64
"""Entries that a thread reads one after the other: passing a small one to a thread costs more than reading it."""


def find_tail(store: ObjectStore, region_id: RegionId, suffix: str, known_wal_id: int, concurrency: int = 1) -> int:
    """Return the last consecutive entry after ``known_wal_id``, or that itself, by probing upward.

    ``known_wal_id`` is an entry up to which nothing needs to be probed, for example the replay pointer.
    Never pass a hint when rows are to be replayed: a hint may be wrong. Where the tail turns out to be
    long, ``concurrency`` entries are probed at once, beyond its end, too, but never more than were found.
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
    """Read every entry after the replay pointer, ascending without a hole; empty if everything is flushed.

    Entries are read without probing first: the one that is missing is the end. ``wal_id_last_seen`` was seen
    once, so it must exist; ``shape`` is what entries most probably have.

    Raises:
        CorruptionError: The WAL goes on behind an entry that is missing (replaying on would drop all later rows, or
            bring them back over newer ones), an entry cannot be read, or the WAL has entries of another codec.
    """
    entries: list[WalEntry] = []
    fetched_bytes = 0
    while True:
        first = replay_after_wal_id + len(entries) + 1
        known = wal_id_last_seen - first + 1
        width = _width(store, known, len(entries), fetched_bytes, concurrency)
        found = _fetch_run(store, region_id, codec, range(first, first + width), concurrency)
        for data in found:
            # Whoever claims a region lives long, and what lies there need not be what this project wrote.
            entries.append(codec.decode(store, region_id, first, data, shape, apart=True))
            fetched_bytes += len(data)
            first += 1
        if len(found) < width:
            break
    tail = replay_after_wal_id + len(entries)
    _check_tail(store, region_id, codec, replay_after_wal_id, wal_id_last_seen, tail)
    return entries


def _width(store: ObjectStore, known: int, read: int, read_bytes: int, concurrency: int) -> int:
    """Return how many entries to fetch at once.

    A thread costs more than fetching a small local file. Elsewhere a request takes most of the time, so
    entries that are known to exist are fetched together, and beyond them as many as were found.
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
    """Return where the entries after the replay pointer are, without reading them; otherwise as ``read_tail``."""
    # Probing a local file takes a tenth of the time that it takes in another thread.
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
    """Refuse a tail behind which the WAL goes on, or another codec has written."""
    _refuse_other_codec(store, region_id, codec, {replay_after_wal_id + 1, tail + 1})
    refuse_hole(store, region_id, codec.suffix, tail, wal_id_last_seen)


def ends_in_hole(store: ObjectStore, region_id: RegionId, suffix: str, tail: int) -> bool:
    """Return whether one entry is missing after a tail, and the WAL goes on behind it.

    A writer writes one entry after the other, so that none follows a position that is free.
    """
    return _exists(store, region_id, suffix, tail + 2) and not _exists(store, region_id, suffix, tail + 1)


def refuse_hole(store: ObjectStore, region_id: RegionId, suffix: str, tail: int, wal_id_last_seen: int) -> None:
    """Refuse a tail behind which the WAL goes on.

    One missing entry is noticed; several at once only if an entry beyond them was seen before.

    Raises:
        DamagedError: The entry after the tail is missing.
    """
    later = wal_id_last_seen
    if tail >= wal_id_last_seen:
        if not ends_in_hole(store, region_id, suffix, tail):
            return
        later = tail + 2
    raise DamagedError(
        "the WAL has a hole: an entry that existed before is missing",
        remedy="run `memwal repair`, or restore the missing entry from a backup or a versioned bucket; replaying "
        "without it loses rows",
        region_id=str(region_id),
        path=wal_entry_path(region_id, tail + 1, suffix),
        cause=f"it is missing, and entry {later} was written after it",
        missing_wal_id=tail + 1,
        wal_id_last_seen=later,
    )


def read_entries(
    store: ObjectStore, region_id: RegionId, codec: WalCodec, positions: range, concurrency: int
) -> list[WalEntry]:
    """Read entries that are known to exist, in order; ``concurrency`` threads read runs of them."""
    length = max(1, min(_MAX_RUN, len(positions) // (2 * max(1, concurrency))))
    runs = [positions[start : start + length] for start in range(0, len(positions), length)]

    def read_run(run: range) -> list[WalEntry]:
        return [codec.read(store, region_id, wal_id) for wal_id in run]

    return [entry for entries in map_concurrently(read_run, runs, concurrency) for entry in entries]


def _exists(store: ObjectStore, region_id: RegionId, suffix: str, wal_id: int) -> bool:
    return store.head(wal_entry_path(region_id, wal_id, suffix)) is not None


def _refuse_other_codec(store: ObjectStore, region_id: RegionId, codec: WalCodec, wal_ids: set[int]) -> None:
    """Probe where a writer of the other codec would have written: behind a pointer that it reads, too."""
    for suffix in WAL_SUFFIXES:
        for wal_id in sorted(wal_ids):
            if suffix != codec.suffix and _exists(store, region_id, suffix, wal_id):
                raise CorruptionError(
                    "the WAL has entries of two codecs, so their order is unknown",
                    remedy="stop all writers of the region and keep both files; find the writer of the second kind",
                    region_id=str(region_id),
                    wal_id=wal_id,
                    expected=codec.suffix,
                    found=suffix,
                )
