"""How many keys an index of a MemTable must have room for: one rule for all engines and filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memwal_core.memtable.memtable import Fragment

_MOST_KEYS = 4_000_000
"""Limits so high that they mean "never" must not reserve as much memory; the filter is then less selective."""

KeyCapacity = Callable[[Sequence[Fragment]], int]
"""From the first fragments of a MemTable to the most keys that it will have."""


def key_capacity(max_memtable_bytes: int, max_memtable_rows: int) -> KeyCapacity:
    """Return the rule for MemTables that are flushed at so many Arrow bytes or rows."""

    def capacity(first: Sequence[Fragment]) -> int:
        rows = sum(int(fragment.rows.num_rows) for fragment in first)
        size_bytes = sum(fragment.size_bytes for fragment in first)
        by_bytes = max_memtable_bytes * rows // size_bytes if size_bytes else max_memtable_rows
        # One batch may be larger than the limit.
        return max(1, rows, min(max_memtable_rows, by_bytes, _MOST_KEYS))

    return capacity
