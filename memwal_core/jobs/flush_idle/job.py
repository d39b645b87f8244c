"""The flush of idle regions as a job."""

from __future__ import annotations

from functools import partial

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.flush_idle.run import count_flushes, flush_idle_regions
from memwal_core.jobs.job import Job
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.store_time import ahead_of_store
from memwal_core.metrics import Instruments


class FlushJob(Job[FlushRequest, FlushReport]):
    """What writers left in their WALs becomes flushed MemTables."""

    def run(self, context: JobContext, request: FlushRequest) -> FlushReport:
        """Flush regions whose writer is gone."""
        return flush_idle_regions(context, request, partial(ahead_of_store, context, request))

    def size(self, report: FlushReport) -> Work:
        """Return the regions to flush."""
        return Work(regions=len(report.plan.due))

    def count(self, instruments: Instruments, report: FlushReport) -> None:
        """Count what the run did."""
        count_flushes(instruments, report)
