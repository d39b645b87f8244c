"""The whole maintenance of a table in the one order in which every job helps the next.

``plan`` decides (pure) and is walked by whoever runs a cycle, in one process (``run``) or as tasks
of a scheduler. Owns no state: each job keeps its own, and the ledger keeps what became of each. May
import the other jobs, the ledger and what lies below.
"""

from memwal_core.maintenance.cycle.plan import (
    CYCLE_JOB,
    CyclePlan,
    CycleStep,
    JobName,
    LeftOut,
    MaintainRequest,
    StepEnd,
    StepName,
    end_of_cycle,
    plan_cycle,
)
from memwal_core.maintenance.cycle.report import MaintainReport, StepReport
from memwal_core.maintenance.cycle.run import CycleJobs, CycleParts, maintain

__all__ = [
    "CYCLE_JOB",
    "CycleJobs",
    "CycleParts",
    "CyclePlan",
    "CycleStep",
    "JobName",
    "LeftOut",
    "MaintainReport",
    "MaintainRequest",
    "StepEnd",
    "StepName",
    "StepReport",
    "end_of_cycle",
    "maintain",
    "plan_cycle",
]
