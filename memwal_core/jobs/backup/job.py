"""The backup as a job."""

from __future__ import annotations

from memwal_core.jobs.backup.identity import with_same_identity
from memwal_core.jobs.backup.report import CopyReport
from memwal_core.jobs.backup.request import BackupRequest
from memwal_core.jobs.backup.run import copy_table
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job


class BackupJob(Job[BackupRequest, CopyReport]):
    """One moment of a table is copied elsewhere."""

    def run(self, context: JobContext, request: BackupRequest) -> CopyReport:
        """Back up, or with ``dry_run`` only say what would be copied."""
        return copy_table(context, request, with_same_identity)
