"""The garbage collection as a job."""

from __future__ import annotations

from itertools import islice

from memwal_core.errors import CorruptionError
from memwal_core.format.paths import MEM_WAL_DIRECTORY, TABLE_VERSIONS_DIRECTORY, region_directory
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.policy import check_retention
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.gc.run import collect_garbage, count_garbage
from memwal_core.jobs.job import Division, Job, Piece
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Work, work_at
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.store_time import ahead_of_store
from memwal_core.metrics import Instruments
from memwal_core.settings import Settings
from memwal_core.storage.concurrent import map_concurrently


class GcJob(Job[GcRequest, GcReport]):
    """Deletes after proof, and nothing on doubt."""

    def check(self, settings: Settings, request: GcRequest) -> None:
        """Refuse to delete with unsafe retention.

        Raises:
            InvalidRequestError: The retention could delete what a reader or writer still needs.
        """
        if not request.dry_run:
            check_retention(settings.gc)

    def run(self, context: JobContext, request: GcRequest) -> GcReport:
        """Drain, wait if that is asked for, delete."""
        sharing = Sharing(context, request.engine, request)
        ahead = ahead_of_store(context, request)
        regions = set(request.regions) or None
        return collect_garbage(context, sharing, ahead, regions=regions, dry_run=request.dry_run, wait=request.wait)

    def size(self, report: GcReport) -> Work:
        """Return the regions, all of which are listed, and the objects that are judged."""
        return Work(regions=work_at(report.place).regions, objects=len(report.plan.items))

    def planning(self, context: JobContext, request: GcRequest) -> Work:
        """Return the regions, and the objects below them and among the versions of the table, which a plan lists.

        They are counted up to what is too many for whoever asks.
        """
        regions = request.regions or context.manifests.region_ids()
        most = context.settings.dispatch
        if len(regions) > most.max_regions:
            return Work(regions=len(regions))
        below = map(region_directory, request.regions) if request.regions else (MEM_WAL_DIRECTORY,)
        directories = [TABLE_VERSIONS_DIRECTORY, *below]
        objects = map_concurrently(
            lambda each: sum(1 for _ in islice(context.base.store.list_objects(each), most.max_objects + 1)),
            directories,
            context.settings.storage.concurrency,
        )
        return Work(regions=len(regions), objects=sum(objects))

    def count(self, instruments: Instruments, report: GcReport) -> None:
        """Count what the run did."""
        count_garbage(instruments, report)

    def divide(self, context: JobContext, request: GcRequest) -> Division:
        """Make one piece if anything is free, or waits for its grace period and shall be waited for."""
        report = self.run(context, request.planned_only())
        due = bool(report.plan.free) or (request.wait and report.due_at is not None)
        pieces = (Piece(context.opened.uri, request),) if due else ()
        if report.outcome is not JobOutcome.BLOCKED:
            return Division(report, pieces)
        blocked = CorruptionError(
            "nothing is deleted before a person has looked at this table",
            remedy=f"follow {request.info.runbook}",
            table=report.table_uri,
            reason=report.why(),
        )
        return Division(report, pieces, blocked)
