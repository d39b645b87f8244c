"""Rows that are written but not yet flushed, and where in the WAL they are.

Owns the rows of one generation in memory; only the region's writer changes them.
"""

from memwal_core.memtable.capacity import KeyCapacity, key_capacity
from memwal_core.memtable.key_index import Key, KeyIndex, KeyIndexKind, make_key_index
from memwal_core.memtable.lookup import CoveredKeys
from memwal_core.memtable.memtable import Fragment, MemTable, StoredEntry
from memwal_core.memtable.queue import MemTableQueue, Waiting
from memwal_core.memtable.schema import memtable_schema, with_tombstones

__all__ = [
    "CoveredKeys",
    "Fragment",
    "Key",
    "KeyCapacity",
    "KeyIndex",
    "KeyIndexKind",
    "MemTable",
    "MemTableQueue",
    "StoredEntry",
    "Waiting",
    "key_capacity",
    "make_key_index",
    "memtable_schema",
    "with_tombstones",
]
