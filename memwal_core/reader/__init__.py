"""Reading a table as one: base table, flushed MemTables and unflushed rows, the newest row of each key.

Owns no state. ``survey`` looks where rows are, ``plan`` decides what to touch (pure), ``view`` is a
table as it was found, to be queried any number of times. May import the base table, WAL, MemTables,
generations and what lies below; not the writer, whose MemTables it is handed.
"""

from memwal_core.reader.freshness import FRESHNESS_KEY, Consistency, Freshness
from memwal_core.reader.plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.sources import GenerationSource, RegionHolder, SourceKind
from memwal_core.reader.survey import Survey, Surveyor

__all__ = [
    "FRESHNESS_KEY",
    "Consistency",
    "Freshness",
    "GenerationSource",
    "ReadPlan",
    "RegionHolder",
    "RegionRead",
    "SourceKind",
    "Survey",
    "Surveyor",
    "plan_read",
]
