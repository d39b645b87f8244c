"""Reading a table as one: base table, flushed MemTables and unflushed rows; the newest row of each key.

Owns no state. ``survey`` finds where rows are, ``plan`` decides what to read (pure), ``view`` is a table at one moment,
to be queried any number of times. May import the base table, WAL, MemTables, generations and what lies below; not the
writer, whose MemTables the caller passes in.
"""

from memwal_core.reader.freshness import FRESHNESS_KEY, Consistency, Freshness
from memwal_core.reader.plan.read_plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.plan.sources import GenerationSource, RegionHolder, SourceKind
from memwal_core.reader.plan.survey import Survey, Surveyor

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
