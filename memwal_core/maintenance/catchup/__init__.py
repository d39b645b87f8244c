"""Index catch-up: base table indexes over merged rows, and the record of how far they are.

``plan`` decides (pure), ``extend`` and ``run`` act. Owns the ``index_catchup`` field of the MemWAL
index, next to Lance, which writes it in its own index commits. May import base table and what lies
below.
"""

from memwal_core.maintenance.catchup.extend import CatchupParts
from memwal_core.maintenance.catchup.plan import (
    CatchupPlan,
    CatchupSurvey,
    CatchupVerdict,
    IndexPlan,
    plan_catchup,
)
from memwal_core.maintenance.catchup.report import CatchupReport, IndexReport, IndexResult
from memwal_core.maintenance.catchup.run import catch_up, survey_indexes

__all__ = [
    "CatchupParts",
    "CatchupPlan",
    "CatchupReport",
    "CatchupSurvey",
    "CatchupVerdict",
    "IndexPlan",
    "IndexReport",
    "IndexResult",
    "catch_up",
    "plan_catchup",
    "survey_indexes",
]
