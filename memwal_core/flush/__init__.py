"""Turning a MemTable into a flushed MemTable: a small Lance table over the WAL files, no rows copied.

Owns no state. Creates directories that mean nothing until the region manifest records them. May
import the WAL, the MemTable and what lies below.
"""

from memwal_core.flush.companions import write_companions
from memwal_core.flush.fields import FieldLayout, NotedField, field_layout
from memwal_core.flush.indexes import build_maintained_indexes
from memwal_core.flush.places import Reach, nowhere
from memwal_core.flush.plan import FlushPlan, newest_rows, plan_flush
from memwal_core.flush.run import rewrite_memtable, write_flushed_memtable

__all__ = [
    "FieldLayout",
    "FlushPlan",
    "NotedField",
    "Reach",
    "build_maintained_indexes",
    "field_layout",
    "newest_rows",
    "nowhere",
    "plan_flush",
    "rewrite_memtable",
    "write_companions",
    "write_flushed_memtable",
]
