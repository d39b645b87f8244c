"""The whole maintenance of a table in the one order in which every job helps the next.

Owns no state: each job keeps its own, and the ledger keeps what became of each. May import the
other jobs, the ledger and what lies below.
"""

from memwal_core.maintenance.cycle.report import JobName, MaintainReport, StepEnd, StepReport
from memwal_core.maintenance.cycle.run import CycleJobs, CycleParts, MaintainRequest, maintain

__all__ = [
    "CycleJobs",
    "CycleParts",
    "JobName",
    "MaintainReport",
    "MaintainRequest",
    "StepEnd",
    "StepReport",
    "maintain",
]
