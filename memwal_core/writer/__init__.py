"""The write side: one writer per region, and a table writer that routes rows to regions.

Owns a region's right to write (its epoch) and its MemTable. May import everything but the
maintenance jobs and the reader.
"""

from memwal_core.writer.group_commit import PutReceipt
from memwal_core.writer.memory import MemoryBudget
from memwal_core.writer.region_writer import RegionView, RegionWriter
from memwal_core.writer.rotation import RotationReason
from memwal_core.writer.stats import WriterStats
from memwal_core.writer.table_writer import InputCheck, TableReceipt, TableWriter
from memwal_core.writer.takeover import Takeover

__all__ = [
    "InputCheck",
    "MemoryBudget",
    "PutReceipt",
    "RegionView",
    "RegionWriter",
    "RotationReason",
    "TableReceipt",
    "TableWriter",
    "Takeover",
    "WriterStats",
]
