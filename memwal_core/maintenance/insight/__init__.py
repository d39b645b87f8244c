"""Answers for people: is the table healthy, what happened, why does a job not act.

Owns no state. May import every other maintenance package and what lies below.
"""

from memwal_core.maintenance.insight.explain import JobVerdict, RegionAnswer, RegionCase, explain_region
from memwal_core.maintenance.insight.table import TableInsight
from memwal_core.maintenance.insight.why import WhyParts, why

__all__ = [
    "JobVerdict",
    "RegionAnswer",
    "RegionCase",
    "TableInsight",
    "WhyParts",
    "explain_region",
    "why",
]
