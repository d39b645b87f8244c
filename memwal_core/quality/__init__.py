"""Data-quality checks: of flushed MemTables before a merge, of the base table after it.

State: which flushed MemTables are held back (``memwal_core.holds``) and the newest report of each
stage, below ``_mem_wal/_quality``. ``run`` and what it imports need Spark and Great Expectations,
so this package does not re-export it: only the job imports it. May import maintenance.
"""

from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage, quality_facts
from memwal_core.quality.plan import QualityPlan, plan_after, plan_before
from memwal_core.quality.table import QualityTable

__all__ = [
    "Check",
    "CheckResult",
    "QualityPlan",
    "QualityReport",
    "QualityTable",
    "Result",
    "Stage",
    "plan_after",
    "plan_before",
    "quality_facts",
]
