"""Finding rows of one MemTable by key: a bloom filter in front of a key index."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.key_filter import GrowingKeyFilter
from memwal_core.memtable.capacity import KeyCapacity
from memwal_core.memtable.key_index import NO_ROW, Key, KeyIndexKind, make_key_index
from memwal_core.memtable.memtable import Fragment, MemTable
from memwal_core.native.casting import no_rows


class CoveredKeys:
    """The keys of the fragments covered so far, found while the writer adds rows. Safe to call from several threads.

    It keeps no reference to its MemTable, and its answers stay the same after the MemTable has been flushed.
    ``key_columns`` are in key order; ``capacity`` sizes the filter, which does not exist if it is None.
    ``false_positive_rate`` holds while there are no more keys than the filter was sized for.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key_columns: Sequence[str],
        kind: KeyIndexKind = KeyIndexKind.HASH,
        *,
        capacity: KeyCapacity | None = None,
        false_positive_rate: float = 0.001,
    ) -> None:
        self._schema = schema
        self._key = list(key_columns)
        self._kind = kind
        self._capacity = capacity
        self._false_positive_rate = false_positive_rate
        self._lock = threading.Lock()
        self._engine = make_key_index(kind)
        self._filter: GrowingKeyFilter | None = None
        self._covered: list[Fragment] = []
        self._starts = array("q")
        self._rows = 0

    @property
    def mem_size(self) -> int:
        """Bytes of the index structure and the filter, without the key values."""
        return self._engine.mem_size() + (self._filter.size_bytes if self._filter is not None else 0)

    def cover(self, memtable: MemTable) -> None:
        """Add the new fragments of the MemTable, in time proportional to these alone."""
        with self._lock:
            known = max(len(self._covered) - 1, 0)
            fragments = memtable.fragments_from(known)
            if self._covered and fragments[0] is not self._covered[-1]:
                # A late entry was replayed before covered rows: their order has changed. Fragments are
                # only ever inserted, so the last covered one has moved, too.
                self._reset()
                known, fragments = 0, memtable.fragments_from(0)
            if self._filter is None and self._capacity is not None and fragments:
                self._filter = GrowingKeyFilter(self._capacity(fragments), self._false_positive_rate)
            for fragment in fragments[len(self._covered) - known :]:
                keys = fragment.rows.select(self._key)
                self._engine.add(keys, self._rows)
                if self._filter is not None:
                    self._filter.add(keys, self._key)
                self._covered.append(fragment)
                self._starts.append(self._rows)
                self._rows += fragment.rows.num_rows

    def lookup(self, keys: pa.Table) -> pa.Table:
        """Return the newest covered row of each key (without NULLs), in the order of ``keys``; tombstones included."""
        with self._lock:
            named = keys.select(self._key)
            found = self._engine.search(named.filter(pa.array(self._may_contain(named))))
            return self._take(found[found != NO_ROW].tolist())

    def scan(self, low: Key | None = None, high: Key | None = None) -> pa.Table:
        """Return the newest covered row of each key of a range, in key order; tombstones and both bounds included."""
        with self._lock:
            return self._take([row for _, row in self._engine.scan(low, high)])

    def _may_contain(self, keys: pa.Table) -> npt.NDArray[np.bool_]:
        if self._filter is None:
            return np.full(keys.num_rows, bool(self._rows))
        return self._filter.may_contain(keys, self._key)

    def _take(self, rows: list[int]) -> pa.Table:
        """Return rows by number, in time proportional to the fragments that have them."""
        if not rows:
            return no_rows(self._schema)
        numbers = np.asarray(rows, np.int64)
        starts = np.array(self._starts, np.int64)
        used, places = np.unique(np.searchsorted(starts, numbers, "right") - 1, return_inverse=True)
        parts = [self._covered[number].rows for number in used.tolist()]
        # Where the rows of each part begin in the whole, and where they begin among those that are looked at.
        moved = starts[used] - np.cumsum([0, *(part.num_rows for part in parts[:-1])])
        return pa.concat_tables(parts).take(pa.array(numbers - moved[places]))

    def _reset(self) -> None:
        self._engine = make_key_index(self._kind)
        self._filter = None
        self._covered = []
        self._starts = array("q")
        self._rows = 0
