"""Finding rows of one MemTable by key."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from memwal_core.memtable.key_index import NO_ROW, Key, KeyIndexKind, make_key_index
from memwal_core.memtable.memtable import Fragment, MemTable


class MemTableIndex:
    """The key index of a MemTable. Safe to use while its writer adds rows.

    It covers the fragments that were there at the last ``refresh``; with ``indexed_write`` the writer
    refreshes before it acknowledges, else whoever reads does.

    Args:
        memtable: What is indexed.
        key_columns: The primary key in key order.
        kind: The engine.
    """

    def __init__(self, memtable: MemTable, key_columns: Sequence[str], kind: KeyIndexKind = KeyIndexKind.HASH) -> None:
        """Begin without covering anything."""
        self._memtable = memtable
        self._key = list(key_columns)
        self._kind = kind
        self._lock = threading.Lock()
        self._reset()

    @property
    def covered_rows(self) -> int:
        """Rows of the fragments covered."""
        return self._rows

    @property
    def mem_size(self) -> int:
        """Bytes of the index structure, without the key values."""
        return self._engine.mem_size()

    def refresh(self) -> None:
        """Cover all rows that are in the MemTable now."""
        with self._lock:
            fragments = self._memtable.fragments
            if list(fragments[: len(self._covered)]) != self._covered:
                # A late entry was replayed before rows that are covered: their order has changed.
                self._reset()
            for fragment in fragments[len(self._covered) :]:
                self._engine.add(fragment.rows.select(self._key), self._rows)
                self._covered.append(fragment)
                self._rows += fragment.rows.num_rows

    def lookup(self, keys: pa.Table, *, refresh: bool = True) -> pa.Table:
        """Return the newest row of each key that the MemTable holds, tombstones included.

        Args:
            keys: At least the key columns, no NULLs.
            refresh: Whether rows that are not covered yet are covered first. Without, they are missed.

        Returns:
            Rows in the MemTable schema, in the order of ``keys``; keys without a row are left out.
        """
        if refresh:
            self.refresh()
        with self._lock:
            found = self._engine.search(keys.select(self._key))
            return self._take(found[found != NO_ROW].tolist())

    def scan(self, low: Key | None = None, high: Key | None = None, *, refresh: bool = True) -> pa.Table:
        """Return the newest row of each key of a range in key order, tombstones included.

        Args:
            low: Smallest key, included; a tuple for composite keys; None for no bound.
            high: Largest key, included.
            refresh: As for ``lookup``.
        """
        if refresh:
            self.refresh()
        with self._lock:
            return self._take([row for _, row in self._engine.scan(low, high)])

    def _take(self, rows: list[int]) -> pa.Table:
        empty = self._memtable.schema.empty_table()
        held = pa.concat_tables([empty, *(fragment.rows for fragment in self._covered)])
        return held.take(pa.array(np.asarray(rows, np.int64)))

    def _reset(self) -> None:
        self._engine = make_key_index(self._kind)
        self._covered: list[Fragment] = []
        self._rows = 0
