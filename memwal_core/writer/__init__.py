"""The write side: one writer per region, and a table writer that routes rows to regions.

Owns a region's right to write (its epoch) and its MemTables.
"""

from memwal_core.settings.writer import Takeover
from memwal_core.writer.admission.memory import MemoryBudget
from memwal_core.writer.flushing.rotation import RotationReason
from memwal_core.writer.log.group_commit import PutReceipt
from memwal_core.writer.region_writer import RegionView, RegionWriter
from memwal_core.writer.stats import WriterStats
from memwal_core.writer.table_writer import InputCheck, TableReceipt, TableWriter

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
