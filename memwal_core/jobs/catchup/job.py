"""The index catch-up as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memwal_core.errors import CorruptionError, InternalError
from memwal_core.jobs.catchup.report import CatchupReport
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.catchup.run import catch_up, count_catchup
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.sharing.place import Work, work_at
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.metrics import Instruments


class CatchupJob(Job[CatchupRequest, CatchupReport]):
    """Indexes over merged rows; each index succeeds or fails by itself."""

    def run(self, context: JobContext, request: CatchupRequest) -> CatchupReport:
        """Extend the indexes that are behind, and record how far they are."""
        return catch_up(
            context,
            Sharing(context, request.engine, request),
            indexes=set(request.indexes) or None,
            merge_segments=request.merge_segments,
            dry_run=request.dry_run,
        )

    def size(self, report: CatchupReport) -> Work:
        """Return the bytes of the fragments that no index covers yet."""
        return work_at(report.place)

    def count(self, instruments: Instruments, report: CatchupReport) -> None:
        """Count what the run did."""
        count_catchup(instruments, report)

    def divide(self, context: JobContext, request: CatchupRequest) -> Division:
        """Make one piece of each index that is due."""
        report = self.run(context, request.planned_only())
        plan = report.plan
        due = sorted({*(index.name for index in plan.to_extend), *plan.to_record})
        pieces = tuple(Piece(name, request.model_copy(update={"indexes": (name,)})) for name in due)
        missing = sorted(index.name for index in plan.indexes if index.verdict.needs_human)
        if not missing:
            return Division(report, pieces)
        blocked = CorruptionError(
            "an index that MemTables maintain does not exist",
            remedy=f"build it, or take it out of the maintained indexes; {request.info.runbook} has the steps",
            table=report.table_uri,
            indexes=missing,
        )
        return Division(report, pieces, blocked)

    def verify(self, context: JobContext, pieces: Sequence[Piece], results: Sequence[Mapping[str, object]]) -> Proof:
        """Find no index behind, unless another job has changed the table since.

        Raises:
            InternalError: An index is behind although the table is as it was.
        """
        whole = pieces[0].request.model_copy(
            update={"indexes": tuple(name for piece in pieces for name in _indexes(piece))}
        )
        assert isinstance(whole, CatchupRequest)  # noqa: S101 - made by ``divide``
        proof = super().verify(context, [Piece("", whole)], results)
        due = self.divide(context, whole).pieces
        if due and context.base.state().version == proof.facts["version"]:
            raise InternalError(
                "indexes are behind although the table has not changed since they were extended",
                remedy=f"report this, and follow {whole.info.runbook}",
                table=context.opened.uri,
                indexes=[piece.label for piece in due],
                version=proof.facts["version"],
            )
        return proof


def _indexes(piece: Piece) -> tuple[str, ...]:
    assert isinstance(piece.request, CatchupRequest)  # noqa: S101 - made by ``divide``
    return piece.request.indexes
