"""The key indexes of a writer's MemTables, each made when first needed and dropped with its MemTable."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence

import pyarrow as pa

from memwal_core.deduplicate import last_row_per_key, rows_without_key
from memwal_core.memtable import CoveredKeys, Key, KeyCapacity, KeyIndexKind, MemTable


class MemTableIndexes:
    """Finds rows by key in several MemTables. Safe to call from several threads.

    ``key_columns`` are in key order; ``capacity`` sizes the key filters, of which there are none if it is None.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        kind: KeyIndexKind,
        capacity: KeyCapacity | None = None,
        false_positive_rate: float = 0.001,
    ) -> None:
        self._capacity = capacity
        self._false_positive_rate = false_positive_rate
        self._key = list(key_columns)
        self._kind = kind
        self._lock = threading.Lock()
        # No value may reference its key, or MemTables would never be freed.
        self._covered: weakref.WeakKeyDictionary[MemTable, CoveredKeys] = weakref.WeakKeyDictionary()

    def of(self, memtable: MemTable) -> CoveredKeys:
        """Return the keys of a MemTable that are covered so far."""
        with self._lock:
            covered = self._covered.get(memtable)
            if covered is None:
                covered = self._covered[memtable] = CoveredKeys(
                    memtable.schema,
                    self._key,
                    self._kind,
                    capacity=self._capacity,
                    false_positive_rate=self._false_positive_rate,
                )
        return covered

    def refreshed(self, memtable: MemTable) -> CoveredKeys:
        """Return the keys of all rows that are in a MemTable now."""
        covered = self.of(memtable)
        covered.cover(memtable)
        return covered

    def lookup(self, memtables: Sequence[MemTable], keys: pa.Table) -> pa.Table:
        """Return the newest row of each key (without NULLs), tombstones included, newer generations first.

        ``memtables`` has the oldest generation first and is not empty; keys without a row are left out.
        """
        found, missing = [], keys.select(self._key)
        for memtable in reversed(memtables):
            rows = self.refreshed(memtable).lookup(missing)
            missing = rows_without_key(missing, rows, self._key)
            found.append(rows)
        return pa.concat_tables(found)

    def scan(self, memtables: Sequence[MemTable], low: Key | None, high: Key | None) -> pa.Table:
        """Return the newest row of each key of a range in key order, tombstones included; both bounds are included.

        ``memtables`` has the oldest generation first and is not empty.
        """
        parts = [self.refreshed(memtable).scan(low, high) for memtable in memtables]
        if len(parts) == 1:
            return parts[0]
        rows = pa.concat_tables(parts)
        newest = rows.take(pa.array(last_row_per_key(rows.select(self._key), self._key)))
        return newest.sort_by([(name, "ascending") for name in self._key])
