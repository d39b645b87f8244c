"""Merging flushed MemTables into the base table.

``plan`` decides (pure), ``survey`` and ``sources`` read, ``commit`` writes, ``run`` drives. Owns
no state: progress lives in the MemWAL index of the base table, and only ``commit`` moves it.
May import base table, manifests, MemTable schema, storage and what lies below.
"""

from memwal_core.maintenance.merge.batches import MergeBatch, batch_regions
from memwal_core.maintenance.merge.commit import CommitOutcome, CommitStrategy, MergeCommit, NativeCommit
from memwal_core.maintenance.merge.due import judge_regions
from memwal_core.maintenance.merge.opened import OpenedGenerations
from memwal_core.maintenance.merge.plan import MergePlan, MergeSurvey, Verdict, plan_merge
from memwal_core.maintenance.merge.report import CommitReport, MergeReport, RegionReport
from memwal_core.maintenance.merge.run import MergeParts, MergeProgress, NearbyParts, Silent, merge
from memwal_core.maintenance.merge.share import RegionShare
from memwal_core.maintenance.merge.single_commit import SingleCommit, SingleCommitParts
from memwal_core.maintenance.merge.sources import (
    InProcessReader,
    RegionTask,
    RegionWinners,
    WinnerReader,
    read_region,
)
from memwal_core.maintenance.merge.stuck import explain_stuck
from memwal_core.maintenance.merge.survey import Surveyor
from memwal_core.maintenance.merge.verify import MergeProof, verify_merge
from memwal_core.maintenance.merge.workers import InProcessWorkers, MergeWorkers

__all__ = [
    "CommitOutcome",
    "CommitReport",
    "CommitStrategy",
    "InProcessReader",
    "InProcessWorkers",
    "MergeBatch",
    "MergeCommit",
    "MergeParts",
    "MergePlan",
    "MergeProgress",
    "MergeProof",
    "MergeReport",
    "MergeSurvey",
    "MergeWorkers",
    "NativeCommit",
    "NearbyParts",
    "OpenedGenerations",
    "RegionReport",
    "RegionShare",
    "RegionTask",
    "RegionWinners",
    "Silent",
    "SingleCommit",
    "SingleCommitParts",
    "Surveyor",
    "Verdict",
    "WinnerReader",
    "batch_regions",
    "explain_stuck",
    "judge_regions",
    "merge",
    "plan_merge",
    "read_region",
    "verify_merge",
]
