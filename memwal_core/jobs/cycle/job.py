"""The maintenance cycle as a job: one job after another, each recorded, and a stop where a person is needed."""

from __future__ import annotations

import logging

from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    FrozenError,
    MemwalError,
    UnavailableError,
)
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.cycle.plan import (
    CycleStep,
    LeftOut,
    StepEnd,
    StepName,
    end_of_cycle,
    outcome_of_error,
    plan_cycle,
)
from memwal_core.jobs.cycle.report import MaintainReport, StepReport, worst_outcome
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.gc.policy import check_retention
from memwal_core.jobs.job import Job
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.runner import execute
from memwal_core.settings import Settings

_ENDING = (ConflictError, CommitUnknownError, FencedError, FrozenError, CorruptionError, UnavailableError)
"""Errors that end a step, and say something about the table or its storage."""

_log = logging.getLogger(__name__)


class MaintainJob(Job[MaintainRequest, MaintainReport]):
    """All jobs of a table, each under its own lease and in its own history.

    A job that another run has, or that meets a conflict, does not keep the others from running: none rests on what
    another one did. A job that needs a person ends the cycle, since what it found may be what the next one would
    destroy the evidence of; so does storage that does not answer. Two cycles at once do no harm.
    """

    def check(self, settings: Settings, request: MaintainRequest) -> None:
        """Refuse to delete with unsafe retention.

        Raises:
            InvalidRequestError: The retention could delete what a reader or writer still needs.
        """
        if request.delete:
            check_retention(settings.gc)

    def run(self, context: JobContext, request: MaintainRequest) -> MaintainReport:
        """Run the steps of the plan in their order."""
        return _Cycle(context, request).run()


class _Cycle:
    """One cycle's steps so far."""

    def __init__(self, context: JobContext, request: MaintainRequest) -> None:
        self._context = context
        self._request = request
        self._plan = plan_cycle(request, context.settings)
        self._steps: list[StepReport] = []
        self._stopped = ""

    def run(self) -> MaintainReport:
        clock = self._context.clock
        began = clock.monotonic()
        for number, step in enumerate(self._plan.steps):
            self._context.progress("steps", number, len(self._plan.steps))
            self._stopped = self._stopped or self._refused()
            self._steps.append(self._step(step))
        steps, dry_run = tuple(self._steps), self._request.dry_run
        outcome = worst_outcome(steps, dry_run=dry_run)
        return MaintainReport(self._context.opened.uri, outcome, dry_run, steps, clock.monotonic() - began)

    def _refused(self) -> str:
        """Return why whoever started the cycle wants no further step of it; empty if the next one may begin."""
        try:
            self._context.guard()
        except MemwalError as error:
            return error.what
        return ""

    def _step(self, step: CycleStep) -> StepReport:
        pause = self._context.opened.ledger.may_run(step.request.key)
        left_out = self._plan.left_out(step, self._before(), pause, self._stopped)
        return _unrun(step, left_out) if left_out is not None else self._run(step)

    def _before(self) -> dict[StepName, JobOutcome]:
        return {report.step: report.outcome for report in self._steps if report.end is StepEnd.RAN}

    def _run(self, step: CycleStep) -> StepReport:
        context = self._context
        began = context.clock.monotonic()
        try:
            report = execute(context.opened, step.request, holder=context.holder, executors=context.executors)
        except LeaseHeldError as error:
            # Another run does this work just now: neither a failure of the job nor one of the cycle.
            return _unrun(step, LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, error.what))
        except _ENDING as error:
            return self._failed(step, error, context.clock.monotonic() - began)
        self._stopped = end_of_cycle(step, report.outcome)
        seconds = context.clock.monotonic() - began
        return StepReport(
            step.name, step.job, StepEnd.RAN, report.outcome, report.why(), report.to_dict(), seconds=seconds
        )

    def _failed(self, step: CycleStep, error: MemwalError, seconds: float) -> StepReport:
        self._stopped = end_of_cycle(step, error)
        _log.warning("a job of the cycle failed [table=%s, job=%s]: %s", self._context.opened.uri, step.job, error)
        described = {
            "class": type(error).__name__,
            "what": error.what,
            "next": error.remedy,
            "facts": {name: str(value) for name, value in error.facts.items()},
        }
        outcome = outcome_of_error(error)
        return StepReport(step.name, step.job, StepEnd.RAN, outcome, error.what, error=described, seconds=seconds)


def _unrun(step: CycleStep, left_out: LeftOut) -> StepReport:
    return StepReport(step.name, step.job, left_out.end, left_out.outcome, left_out.why)
