"""What a flush will do, decided from the MemTable alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.deduplicate import key_order, last_row_per_key, superseded_rows
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable, StoredEntry

ROWS_PER_FRAGMENT_BITS = 32
"""A row address is (fragment id << 32) + offset."""


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """One flush.

    Attributes:
        directory: Name of the directory to create inside the region directory.
        entries: The WAL entries after the replay pointer up to the last one, ascending.
        keys: The key columns of all rows, one chunk each.
        superseded: Row addresses of rows that a later row of the same key replaces, ascending.
        key_order: Row numbers by key, if the key is one integer; see ``newest.key_order``.
        in_memory_bytes: Arrow bytes of all rows.
    """

    region_id: RegionId
    generation: int
    directory: str
    entries: tuple[StoredEntry, ...]
    keys: pa.Table
    superseded: npt.NDArray[np.int64]
    key_order: npt.NDArray[np.int64] | None
    in_memory_bytes: int

    @property
    def physical_rows(self) -> int:
        """All rows, superseded ones included."""
        return sum(entry.rows for entry in self.entries)

    @property
    def first_wal_id(self) -> int:
        """The first entry of the MemTable's WAL range."""
        return self.entries[0].wal_id

    @property
    def last_wal_id(self) -> int:
        """The entry up to which replay is no longer needed once the flush is recorded."""
        return self.entries[-1].wal_id


def plan_flush(memtable: MemTable, region_id: RegionId, directory: str, key_columns: Sequence[str]) -> FlushPlan:
    """Plan the flush of a MemTable that has rows, all of them in the WAL; ``directory`` is a fresh name."""
    entries = memtable.stored_entries()
    keys = memtable.to_table(key_columns).combine_chunks()
    order = key_order(keys, key_columns)
    superseded = superseded_rows(keys, key_columns, order)
    return FlushPlan(
        region_id=region_id,
        generation=memtable.generation,
        directory=directory,
        entries=entries,
        keys=keys,
        superseded=row_addresses(superseded, [entry.rows for entry in entries]),
        key_order=order,
        in_memory_bytes=memtable.size_bytes,
    )


def deduplicated_rows(memtable: MemTable, key_columns: Sequence[str]) -> pa.Table:
    """Return the last row of each key of a MemTable, in write order, tombstones included."""
    rows = memtable.to_table()
    return rows.take(pa.array(last_row_per_key(rows.select(list(key_columns)), key_columns)))


def row_addresses(rows: npt.NDArray[np.int64], rows_per_fragment: Sequence[int]) -> npt.NDArray[np.int64]:
    """Translate row numbers counted over all fragments into row addresses."""
    ends = np.cumsum(np.asarray(rows_per_fragment, dtype=np.int64))
    fragment = np.searchsorted(ends, rows, side="right")
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends])[fragment]
    addresses: npt.NDArray[np.int64] = (fragment.astype(np.int64) << ROWS_PER_FRAGMENT_BITS) + (rows - starts)
    return addresses
