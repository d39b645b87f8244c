"""The repair as a job."""

from __future__ import annotations

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job
from memwal_core.jobs.repair.report import RepairReport
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.run import RepairContext, repair


class RepairJob(Job[RepairRequest, RepairReport]):
    """A damaged table becomes whole again, with a copy of everything that is touched."""

    def run(self, context: JobContext, request: RepairRequest) -> RepairReport:
        """Repair, or with ``dry_run`` only say what would be done."""
        return repair(RepairContext(context.opened, context.guard, context.progress), request)
