"""What a cycle did whose steps ran as tasks of a scheduler, told from the histories of their jobs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome, RunRecord
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.plan import CyclePlan, CycleStep, LeftOut, StepEnd, StepName, end_of_cycle
from memwal_core.jobs.cycle.report import MaintainReport, StepReport, worst_outcome
from memwal_core.jobs.outcome import JobOutcome

_MEANINGS: Mapping[RunOutcome, JobOutcome] = MappingProxyType(
    {
        RunOutcome.FENCED: JobOutcome.BLOCKED,
        RunOutcome.REFUSED: JobOutcome.BLOCKED,
        RunOutcome.RUNNING: JobOutcome.FAILED,
        RunOutcome.INTERRUPTED: JobOutcome.FAILED,
    }
)
"""What the end of a run means to the cycle, where the words differ."""


def retold_cycle(
    opened: OpenTable,
    plan: CyclePlan,
    holder: str,
    began: datetime,
    said: Mapping[str, str],
    held: Collection[str] = (),
) -> MaintainReport:
    """Return the report of a cycle that is over.

    Args:
        opened: The table.
        plan: Of the cycle.
        holder: Who ran it.
        began: When it began.
        said: Step -> why it did nothing, of those that said so: no history tells.
        held: Steps that another run did meanwhile; no history tells either.

    Raises:
        CorruptionError: A history cannot be read.
    """
    steps: list[StepReport] = []
    for step, runs in zip(plan.steps, runs_of_steps(opened, plan, holder, began).values(), strict=True):
        report = _ran(step, runs) if runs else _unrun(opened, plan, step, steps, said)
        is_held = not runs and report.end is StepEnd.SKIPPED and step.name.value in held
        steps.append(replace(report, outcome=JobOutcome.CONFLICT, is_held=True) if is_held else report)
    outcome = worst_outcome(tuple(steps), dry_run=False)
    seconds = max(0.0, (opened.clock.now() - began).total_seconds())
    return MaintainReport(opened.uri, outcome, dry_run=False, steps=tuple(steps), seconds=seconds)


def runs_of_steps(
    opened: OpenTable, plan: CyclePlan, holder: str, began: datetime
) -> Mapping[StepName, Sequence[RunRecord]]:
    """Return the runs of each step of a cycle, in the order of the steps; a job may have several.

    Raises:
        CorruptionError: A history cannot be read.
    """
    own = {
        key: [run for run in opened.ledger.history(key).runs if run.holder == holder and run.started >= began]
        for key in {step.request.key for step in plan.steps}
    }
    found: dict[StepName, Sequence[RunRecord]] = {}
    earliest = began
    for number, step in enumerate(plan.steps):
        latest = _next_start(plan, number, own)
        found[step.name] = [
            run for run in own[step.request.key] if run.started >= earliest and (not latest or run.started < latest)
        ]
        earliest = max([earliest, *(run.started for run in found[step.name])])
    return found


def _next_start(plan: CyclePlan, number: int, own: Mapping[JobKey, Sequence[RunRecord]]) -> datetime | None:
    """Return when the job between this step and the next one of the same job began; None if nothing separates them."""
    key = plan.steps[number].request.key
    later = [each.request.key for each in plan.steps[number + 1 :]]
    if key not in later:
        return None
    between = [run.started for other in later[: later.index(key)] for run in own[other]]
    return min(between, default=None)


def _ran(step: CycleStep, runs: Sequence[RunRecord]) -> StepReport:
    """Report a step by its last attempt."""
    last = runs[-1]
    outcome = _MEANINGS.get(last.outcome) or JobOutcome(last.outcome.value)
    why = last.verdict or "it did not report its end"
    error = {"class": last.error, "what": last.verdict, "next": "see the log of its task"} if last.error else None
    ended = last.ended or last.started
    return StepReport(
        step.name,
        step.job,
        StepEnd.RAN,
        outcome,
        why,
        error=error,
        seconds=(ended - runs[0].started).total_seconds(),
    )


def _unrun(
    opened: OpenTable, plan: CyclePlan, step: CycleStep, before: Sequence[StepReport], said: Mapping[str, str]
) -> StepReport:
    ran = {each.step: each.outcome for each in before if each.end is StepEnd.RAN}
    failed = next((each for each in before if _has_ended_the_cycle(plan, each)), None)
    stopped = f"{failed.job} failed" if failed is not None else ""
    if not stopped and any(freeze.stops_table for freeze in opened.freezes.active()):
        left_out = LeftOut(StepEnd.NOT_REACHED, JobOutcome.FROZEN, "the table is frozen")
    else:
        found = plan.left_out(step, ran, opened.ledger.may_run(step.request.key), stopped)
        why = said.get(step.name.value, "there was nothing to do")
        left_out = found or LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)
    return StepReport(step.name, step.job, left_out.end, left_out.outcome, left_out.why)


def _has_ended_the_cycle(plan: CyclePlan, report: StepReport) -> bool:
    step = plan.step(report.step.value)
    if report.error is not None:
        return not step.is_advisory
    return bool(end_of_cycle(step, report.outcome))
