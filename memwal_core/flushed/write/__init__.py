"""Turning a MemTable into a flushed MemTable: a small Lance table whose large files are WAL entries, not copied.

Owns no state. The directories it creates mean nothing until the region manifest records them. May import the WAL, the
MemTable and what lies below.
"""

from memwal_core.flushed.write.directory import write_flushed_memtable
from memwal_core.flushed.write.fields import FieldLayout, field_layout
from memwal_core.flushed.write.flush_plan import FlushPlan, plan_flush
from memwal_core.flushed.write.indexes import build_maintained_indexes
from memwal_core.flushed.write.rebase import rebase_flushed
from memwal_core.flushed.write.sidecars import write_sidecars

__all__ = [
    "FieldLayout",
    "FlushPlan",
    "build_maintained_indexes",
    "field_layout",
    "plan_flush",
    "rebase_flushed",
    "write_flushed_memtable",
    "write_sidecars",
]
