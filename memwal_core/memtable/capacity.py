"""How many keys an index of a MemTable must have room for: one rule for all engines and filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memwal_core.memtable.memtable import Fragment

_MOST_KEYS = 4_000_000
"""Limits that mean "never" must not reserve memory for as many keys; the filter is then less selective."""

KeyCapacity = Callable[[Sequence[Fragment]], int]
"""From the first fragments of a MemTable to the keys that it will hold at most."""


def key_capacity(max_memtable_bytes: int, max_memtable_rows: int) -> KeyCapacity:
    """Return the rule for MemTables of a given size.

    Args:
        max_memtable_bytes: Arrow bytes after which a MemTable is flushed.
        max_memtable_rows: Rows after which a MemTable is flushed.
    """

    def capacity(first: Sequence[Fragment]) -> int:
        rows = sum(int(fragment.rows.num_rows) for fragment in first)
        size_bytes = sum(fragment.size_bytes for fragment in first)
        by_bytes = max_memtable_bytes * rows // size_bytes if size_bytes else max_memtable_rows
        # One batch may be larger than the limit.
        return max(1, rows, min(max_memtable_rows, by_bytes, _MOST_KEYS))

    return capacity
