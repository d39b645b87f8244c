"""The MemWAL index builder: one snapshot of all regions for readers, and fresh WAL hints.

``plan`` decides (pure), ``survey`` reads, ``run`` writes. Owns the snapshot fields of the MemWAL
index and nothing else; region manifests stay the truth. May import base table, manifests, WAL and
what lies below.
"""

from memwal_core.maintenance.snapshot.plan import (
    SnapshotPlan,
    SnapshotReason,
    SnapshotSurvey,
    SurveyedRegion,
    plan_snapshot,
)
from memwal_core.maintenance.snapshot.report import SnapshotReport
from memwal_core.maintenance.snapshot.run import SnapshotParts, build_region_snapshot
from memwal_core.maintenance.snapshot.survey import observed_tail, survey_regions

__all__ = [
    "SnapshotParts",
    "SnapshotPlan",
    "SnapshotReason",
    "SnapshotReport",
    "SnapshotSurvey",
    "SurveyedRegion",
    "build_region_snapshot",
    "observed_tail",
    "plan_snapshot",
    "survey_regions",
]
