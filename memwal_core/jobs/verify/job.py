"""The verification as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Job, Piece, Proof
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.report import VerifyReport
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.jobs.verify.run import verify


class VerifyJob(Job[VerifyRequest, VerifyReport]):
    """Every primary key once in the whole base table."""

    def run(self, context: JobContext, request: VerifyRequest) -> VerifyReport:
        """Count the keys of the newest version."""
        sharing = Sharing(context, request.engine, request)
        return verify(context.base, context.clock, sharing, dry_run=request.dry_run)

    def size(self, report: VerifyReport) -> Work:
        """Return the bytes of the keys to count."""
        return report.plan.work

    def verify(
        self,
        context: JobContext,  # noqa: ARG002 - the job is the proof
        pieces: Sequence[Piece],  # noqa: ARG002
        results: Sequence[Mapping[str, object]],
    ) -> Proof:
        """Repeat what the run has found; it fails if a key occurs more than once."""
        found = dict(results[-1]) if results else {}
        return Proof("every key once" if found else "the table has no primary key", found)
