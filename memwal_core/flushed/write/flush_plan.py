"""What a flush will do, decided from the MemTable alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.deduplicate import key_order, superseded_rows
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable, StoredEntry

CanShare = Callable[[StoredEntry], bool]
"""Tells whether a WAL entry is a file of which a flushed MemTable can consist."""


@dataclass(frozen=True, slots=True)
class PlannedFragment:
    """Consecutive rows of the MemTable that become one fragment.

    Attributes:
        start: Number of its first row in the MemTable.
        hidden: For each of its rows, whether a later row of the same key replaces it.
        entry: The WAL entry that is the fragment's file; None if the rows that are not hidden are written to a new
            one.
    """

    start: int
    hidden: npt.NDArray[np.bool_]
    entry: StoredEntry | None

    @property
    def physical_rows(self) -> int:
        """Rows of the file: a WAL entry has hidden rows, a new file does not."""
        return len(self.hidden) if self.entry is not None else len(self.hidden) - int(np.count_nonzero(self.hidden))


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """One flush.

    Attributes:
        directory: Name of the directory to create inside the region directory.
        entries: The WAL entries after the replay pointer up to the last one, ascending.
        pieces: The fragments, in write order; WAL entries without a row that counts have none.
        keys: The key columns of all physical rows, one chunk each.
        superseded: How many rows a later row of the same key replaces.
        key_order: Physical row numbers by key, if the key is one integer; see ``deduplicate.key_order``.
        in_memory_bytes: Arrow bytes of all rows of the MemTable.
    """

    region_id: RegionId
    generation: int
    directory: str
    entries: tuple[StoredEntry, ...]
    pieces: tuple[PlannedFragment, ...]
    keys: pa.Table
    superseded: int
    key_order: npt.NDArray[np.int64] | None
    in_memory_bytes: int

    @property
    def shared(self) -> tuple[StoredEntry, ...]:
        """The WAL entries that are files of the flushed MemTable, ascending."""
        return tuple(piece.entry for piece in self.pieces if piece.entry is not None)

    @property
    def physical_rows(self) -> int:
        """Rows of all files, hidden ones included."""
        return sum(piece.physical_rows for piece in self.pieces)

    @property
    def first_wal_id(self) -> int:
        """The first entry of the MemTable's WAL range."""
        return self.entries[0].wal_id

    @property
    def last_wal_id(self) -> int:
        """The entry up to which replay is no longer needed once the flush is recorded."""
        return self.entries[-1].wal_id


def plan_flush(
    memtable: MemTable,
    region_id: RegionId,
    directory: str,
    key_columns: Sequence[str],
    *,
    can_share: CanShare,
    pack_below_bytes: int,
) -> FlushPlan:
    """Plan the flush of a MemTable that has rows, all of them in the WAL.

    Args:
        memtable: What to flush.
        region_id: Its region.
        directory: A fresh name.
        key_columns: The primary key in key order.
        can_share: Which WAL entries can be files of the flushed MemTable; the rows of others are written again.
        pack_below_bytes: Neighbouring WAL entries smaller than this are written again as one file.
    """
    entries = memtable.stored_entries()
    keys = memtable.to_table(key_columns).combine_chunks()
    order = key_order(keys, key_columns)
    hidden = np.zeros(keys.num_rows, dtype=bool)
    superseded = superseded_rows(keys, key_columns, order)
    hidden[superseded] = True
    pieces = divided(entries, hidden, can_share, pack_below_bytes)
    physical = _physical(pieces, keys.num_rows)
    if not physical.all():
        keys = keys.filter(pa.array(physical)).combine_chunks()
        order = None if order is None else (np.cumsum(physical) - 1)[order[physical[order]]]
    return FlushPlan(
        region_id=region_id,
        generation=memtable.generation,
        directory=directory,
        entries=entries,
        pieces=pieces,
        keys=keys,
        superseded=len(superseded),
        key_order=order,
        in_memory_bytes=memtable.size_bytes,
    )


def divided(
    entries: Sequence[StoredEntry], hidden: npt.NDArray[np.bool_], can_share: CanShare, pack_below_bytes: int
) -> tuple[PlannedFragment, ...]:
    """Divide the rows of WAL entries into fragments: large entries as they are, runs of small ones together.

    A small entry between two large ones stays as it is, because writing it again would not save a fragment.
    """
    pieces: list[PlannedFragment] = []
    run: list[StoredEntry] = []
    start = end = 0

    def close_run() -> None:
        nonlocal start
        if run:
            shared = run[0] if len(run) == 1 and can_share(run[0]) else None
            pieces.append(PlannedFragment(start, hidden[start:end], shared))
            run.clear()
        start = end

    for entry in entries:
        is_packed = entry.size_bytes < pack_below_bytes or not can_share(entry)
        if not is_packed:
            close_run()
        if entry.rows:
            run.append(entry)
        end += entry.rows
        if not is_packed:
            close_run()
    close_run()
    return tuple(piece for piece in pieces if not piece.hidden.all())


def _physical(pieces: Sequence[PlannedFragment], rows: int) -> npt.NDArray[np.bool_]:
    """Return for each row of the MemTable whether a fragment has it."""
    physical = np.zeros(rows, dtype=bool)
    for piece in pieces:
        end = piece.start + len(piece.hidden)
        physical[piece.start : end] = True if piece.entry is not None else ~piece.hidden
    return physical
