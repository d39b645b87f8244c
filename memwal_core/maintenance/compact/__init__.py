"""Compaction of the base table's fragments, and removal of its old versions.

``plan`` and ``cleanup.plan_cleanup`` decide (pure), ``run`` acts. Owns no state: fragments and
versions are Lance's. May import catch-up, base table and what lies below.
"""

from memwal_core.maintenance.compact.cleanup import CleanupPlan, CleanupReport, Kept, clean_up, plan_cleanup
from memwal_core.maintenance.compact.plan import CompactPlan, CompactVerdict, plan_compaction
from memwal_core.maintenance.compact.report import CompactReport, RewriteReport
from memwal_core.maintenance.compact.run import CompactParts, compact

__all__ = [
    "CleanupPlan",
    "CleanupReport",
    "CompactParts",
    "CompactPlan",
    "CompactReport",
    "CompactVerdict",
    "Kept",
    "RewriteReport",
    "clean_up",
    "compact",
    "plan_cleanup",
    "plan_compaction",
]
