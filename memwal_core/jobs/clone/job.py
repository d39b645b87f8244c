"""The clone as a job."""

from __future__ import annotations

from memwal_core.jobs.backup.identity import with_own_identity
from memwal_core.jobs.backup.report import CopyReport
from memwal_core.jobs.backup.run import copy_table
from memwal_core.jobs.clone.request import CloneRequest
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job


class CloneJob(Job[CloneRequest, CopyReport]):
    """One moment of a table becomes another table."""

    def run(self, context: JobContext, request: CloneRequest) -> CopyReport:
        """Clone, or with ``dry_run`` only say what would be copied."""
        return copy_table(context, request, with_own_identity)
