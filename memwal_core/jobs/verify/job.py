"""The verification as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memwal_core.jobs.context import JobContext
from memwal_core.jobs.job import Division, Job, Piece, Proof
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.dispatch import dispatch_plan
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.facts import MERGED_FACT, VERIFY
from memwal_core.jobs.verify.plan import VerifyPlan, plan_verification
from memwal_core.jobs.verify.report import VerifyReport
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.jobs.verify.run import verify


class VerifyJob(Job[VerifyRequest, VerifyReport]):
    """Every primary key once in the whole base table."""

    def run(self, context: JobContext, request: VerifyRequest) -> VerifyReport:
        """Count the keys of the newest version."""
        plan = _plan(context, request)
        sharing = Sharing(context, request.engine, request)
        if request.due_only and plan.is_due and not sharing.has_executors:
            plan = replace(plan, undue=_too_much(plan, context))
        return verify(context.base, context.clock, sharing, plan, dry_run=request.dry_run)

    def divide(self, context: JobContext, request: VerifyRequest) -> Division:
        """Plan the count; it may be large, because executors may do it."""
        plan = _plan(context, request)
        report = verify(context.base, context.clock, Sharing(context, request.engine, request), plan, dry_run=True)
        due = report.outcome is JobOutcome.PLANNED
        return Division(report, (Piece(context.opened.uri, request),) if due else ())

    def size(self, report: VerifyReport) -> Work:
        """Return the bytes of the keys to count."""
        return report.plan.work if report.plan.is_due else Work()

    def verify(
        self,
        context: JobContext,  # noqa: ARG002 - the job is the proof
        pieces: Sequence[Piece],  # noqa: ARG002
        results: Sequence[Mapping[str, object]],
    ) -> Proof:
        """Repeat what the run has found; it fails if a key occurs more than once."""
        found = dict(results[-1]) if results else {}
        return Proof("every key once" if found else "the table has no primary key", found)


def _plan(context: JobContext, request: VerifyRequest) -> VerifyPlan:
    plan = plan_verification(context.opened.uri, context.base.state())
    if not request.due_only or not plan.is_due:
        return plan
    counts = [run.facts for run in context.opened.ledger.history(VERIFY).runs if MERGED_FACT in run.facts]
    same = bool(counts) and counts[-1][MERGED_FACT] == plan.merged
    return replace(plan, undue="nothing was merged since every key was found once") if same else plan


def _too_much(plan: VerifyPlan, context: JobContext) -> str:
    sent = dispatch_plan(plan.work, context.settings.dispatch)
    return f"not verified in this process, submit jobs/verify.py to Spark: {sent.reason}" if sent is not None else ""
