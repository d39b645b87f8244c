"""The snapshot build as a job."""

from __future__ import annotations

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Division, Job, Piece
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.snapshot.report import SnapshotReport
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.snapshot.run import build_region_snapshot, count_snapshot
from memwal_core.metrics import Instruments


class SnapshotJob(Job[SnapshotRequest, SnapshotReport]):
    """All regions as readers see them without listing the store."""

    def run(self, context: JobContext, request: SnapshotRequest) -> SnapshotReport:
        """Publish the snapshot if it would say anything new."""
        sharing = Sharing(context, request.engine, request)
        return build_region_snapshot(context, sharing, force=request.force, dry_run=request.dry_run)

    def size(self, report: SnapshotReport) -> Work:
        """Return the regions, all of which are read."""
        return Work(regions=report.plan.regions)

    def count(self, instruments: Instruments, report: SnapshotReport) -> None:
        """Count what the run did."""
        count_snapshot(instruments, report)

    def knows_the_end(self, report: SnapshotReport) -> bool:
        """The version that a publication made was read, and shown to the watch."""
        return report.outcome is not JobOutcome.CONFLICT

    def divide(self, context: JobContext, request: SnapshotRequest) -> Division:
        """Make one piece if a snapshot is due."""
        report = self.run(context, request.planned_only())
        return Division(report, (Piece(context.opened.uri, request),) if report.plan.is_due else ())
