"""The compaction as a job."""

from __future__ import annotations

from datetime import timedelta

from memwal_core.jobs.compact.report import CompactReport
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.compact.run import compact, count_compaction
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.store_time import ahead_of_store
from memwal_core.metrics import Instruments


class CompactJob(Job[CompactRequest, CompactReport]):
    """Small and half deleted fragments become large ones, with the indexes caught up before and after."""

    def run(self, context: JobContext, request: CompactRequest) -> CompactReport:
        """Rewrite what is worth it, and remove old versions if that is asked for."""
        return compact(
            context,
            Sharing(context, request.engine, request),
            ahead_of_store(context, request) if request.remove_versions else timedelta(),
            force=request.force,
            dry_run=request.dry_run,
            remove_versions=request.remove_versions,
        )

    def size(self, report: CompactReport) -> Work:
        """Return the bytes of the fragments to rewrite, and the versions to remove."""
        removed = report.cleanup.result.versions if report.cleanup is not None else 0
        return Work(size_bytes=report.plan.size_bytes, objects=removed)

    def count(self, instruments: Instruments, report: CompactReport) -> None:
        """Count what the run did."""
        count_compaction(instruments, report)
