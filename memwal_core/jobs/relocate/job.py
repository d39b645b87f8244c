"""The relocation as a job."""

from __future__ import annotations

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job
from memwal_core.jobs.relocate.report import RelocateReport
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.relocate.run import relocate


class RelocateJob(Job[RelocateRequest, RelocateReport]):
    """A table that was copied or moved is at home at its present address."""

    def run(self, context: JobContext, request: RelocateRequest) -> RelocateReport:
        """Relocate, or with ``dry_run`` only say what would be done."""
        return relocate(context, request)
