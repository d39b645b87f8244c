"""The maintenance cycle as a job: one job after another, each recorded, and a stop where a person is needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.coordination.ledger import RunOutcome
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
from memwal_core.jobs.cycle.quiet import (
    LOOK_AGAIN_S,
    Quiet,
    asked_digest,
    record_digest,
    remember_quiet,
    still_quiet,
    tails_digest,
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

_LOOKED = {StepEnd.RAN, StepEnd.SKIPPED}

_log = logging.getLogger(__name__)


class MaintainJob(Job[MaintainRequest, MaintainReport]):
    """All jobs of a table, each under its own lease and in its own history.

    A job that another run has, or that meets a conflict, does not keep the others from running: none rests on what
    another one did. The cycle then ends with a conflict, as the job alone would. A job that needs a person ends the
    cycle, since what it found may be what the next one would destroy the evidence of; so does storage that does not
    answer. Two cycles at once do no harm.
    """

    def check(self, settings: Settings, request: MaintainRequest) -> None:
        """Refuse to delete with unsafe retention.

        Raises:
            InvalidRequestError: The retention could delete what a reader or writer still needs.
        """
        if request.delete:
            check_retention(settings.gc)

    def at_rest(self, context: JobContext, request: MaintainRequest) -> MaintainReport | None:
        """Leave all steps out on a table that is as a cycle left it that had nothing to do."""
        opened, began = context.opened, context.clock.monotonic()
        quiet = still_quiet(opened, request)
        if quiet is None:
            return None
        why = f"nothing has changed since the cycle of {quiet.since:%Y-%m-%d %H:%M:%S} UTC, which had nothing to do"
        left_out = LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)
        steps = tuple(_unrun(step, left_out) for step in plan_cycle(request, opened.settings).steps)
        seconds = context.clock.monotonic() - began
        return MaintainReport(opened.uri, JobOutcome.NOTHING_TO_DO, dry_run=False, steps=steps, seconds=seconds)

    def run(self, context: JobContext, request: MaintainRequest) -> MaintainReport:
        """Run the steps of the plan in their order."""
        return _Cycle(context, request).run()

    def recorded_as(self, report: MaintainReport) -> RunOutcome:
        """Tell a cycle that left jobs to other runs from one that failed."""
        return RunOutcome.BUSY if report.is_busy else super().recorded_as(report)


class _Cycle:
    """One cycle's steps so far."""

    def __init__(self, context: JobContext, request: MaintainRequest) -> None:
        self._context = context
        self._request = request
        self._plan = plan_cycle(request, context.settings)
        self._steps: list[StepReport] = []
        self._stopped = ""
        self._rest_s = context.settings.flush.min_age_s

    def run(self) -> MaintainReport:
        context, clock = self._context, self._context.clock
        began, since = clock.monotonic(), clock.now()
        before = None if self._request.dry_run else record_digest(context.opened)
        tails = tails_digest(context.opened, before)
        for number, step in enumerate(self._plan.steps):
            self._context.progress("steps", number, len(self._plan.steps))
            self._stopped = self._stopped or self._refused()
            planned = tuple(each.step.value for each in self._steps if each.outcome is JobOutcome.PLANNED)
            self._steps.append(replace(self._step(step), unaware_of=planned if self._request.dry_run else ()))
        steps, dry_run = tuple(self._steps), self._request.dry_run
        outcome = worst_outcome(steps, dry_run=dry_run)
        if outcome is JobOutcome.NOTHING_TO_DO and before is not None:
            self._come_to_rest(before, tails, since)
        return MaintainReport(context.opened.uri, outcome, dry_run, steps, clock.monotonic() - began)

    def _come_to_rest(self, before: str, tails: str, since: datetime) -> None:
        """Let the next cycle know that there was nothing to do, and that no step saw anything new."""
        context = self._context
        if not {step.end for step in self._steps} <= _LOOKED or record_digest(context.opened) != before:
            return
        if not self._is_flushed():
            tails = ""
        until = since + timedelta(seconds=LOOK_AGAIN_S if tails else self._rest_s)
        remember_quiet(context, Quiet(before, tails, asked_digest(context.opened, self._request), since, until))

    def _is_flushed(self) -> bool:
        """Tell whether this cycle looked into all WALs, and every row was flushed."""
        report = next((step.report for step in self._steps if step.step is StepName.FLUSH), None)
        plan = report["plan"] if report is not None else None
        return isinstance(plan, Mapping) and not plan["regions"]

    def _refused(self) -> str:
        """Return why whoever started the cycle wants no further step of it; empty if the next one may begin."""
        try:
            self._context.guard()
        except MemwalError as error:
            return error.what
        return ""

    def _step(self, step: CycleStep) -> StepReport:
        pause = self._context.opened.ledger.may_run(step.request.key)
        left_out = self._plan.left_out(step, self._before(), pause, self._stopped) or self._too_early(step)
        if step.every_s and left_out is not None:
            self._rest_s = min(self._rest_s, step.every_s - (pause.since_success_s or 0.0))
        return _unrun(step, left_out) if left_out is not None else self._run(step)

    def _too_early(self, step: CycleStep) -> LeftOut | None:
        """Leave the proof of a merge to the cycle after the one in which another run merges."""
        merges = any(each.step is StepName.MERGE and each.is_held for each in self._steps)
        if step.name is not StepName.VERIFY or not merges:
            return None
        why = "another run merges; what it brings is verified by a later cycle"
        return LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)

    def _before(self) -> dict[StepName, JobOutcome]:
        return {report.step: report.outcome for report in self._steps if report.end is StepEnd.RAN}

    def _run(self, step: CycleStep) -> StepReport:
        context = self._context
        began = context.clock.monotonic()
        try:
            report = execute(context.opened, step.request, holder=context.holder, executors=context.executors)
        except LeaseHeldError as error:
            # Another run does this work just now: neither a failure of the job nor one of the cycle.
            why = f"{error.what} until {error.facts['expires_at']}"
            return _unrun(step, LeftOut(StepEnd.SKIPPED, JobOutcome.CONFLICT, why), is_held=True)
        except MemwalError as error:
            if not (step.is_advisory or isinstance(error, _ENDING)):
                raise
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


def _unrun(step: CycleStep, left_out: LeftOut, *, is_held: bool = False) -> StepReport:
    return StepReport(step.name, step.job, left_out.end, left_out.outcome, left_out.why, is_held=is_held)
