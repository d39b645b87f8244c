"""The cycle of one table as tasks: which tables are due, and each step as the plan of the cycle says."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypedDict

from memwal_core.airflow.tasks.tables import find_table, open_table
from memwal_core.airflow.tasks.work import WorkItem, WorkResult, do_work, is_frozen
from memwal_core.clock import Clock, SystemClock
from memwal_core.coordination.ledger import RunEnd, RunOutcome, RunRecord
from memwal_core.errors import MemwalError
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.cycle.plan import CyclePlan, CycleStep, LeftOut, StepEnd, StepName, plan_cycle
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.cycle.retelling import retold_cycle
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.runner import load_job
from memwal_core.registry import RegisteredTable, require_registry

_log = logging.getLogger(__name__)


class CycleTable(TypedDict):
    """One table of a run.

    Attributes:
        label: For people.
        table: Its name; the registry says what its cycle may do.
        ignore_pauses: Whether jobs run that pause because they kept failing.
    """

    label: str
    table: str
    ignore_pauses: bool


class CycleResult(TypedDict):
    """What became of a step.

    Attributes:
        step: Which.
        ran: Whether its job was called.
        outcome: How it ended; of a step that did not run, what that means to the cycle.
        why: Why it did not run; empty if it did.
        result: The job's own result; None if it did not run.
    """

    step: str
    ran: bool
    outcome: str
    why: str
    result: WorkResult | None


def choose_cycle_tables(
    names: Sequence[str], *, by_schedule: bool, ignore_pauses: bool = False, clock: Clock | None = None
) -> list[CycleTable]:
    """Return the registered tables whose cycle is to run.

    Args:
        names: Only these; empty = all that are not excluded.
        by_schedule: Leave out tables whose last cycle began less than ``every_minutes`` ago.
        ignore_pauses: Run jobs that pause because they kept failing.
        clock: The system's if None.

    Raises:
        InvalidRequestError: No registry is configured, or a name is not registered.
    """
    registry = require_registry()
    chosen = [registry.find(name) for name in names] if names else list(registry.maintained)
    now = (clock if clock is not None else SystemClock()).now()
    return [
        CycleTable(label=table.name, table=table.name, ignore_pauses=ignore_pauses)
        for table in chosen
        if not by_schedule or _is_due(table, now)
    ]


def begin_cycle(table: CycleTable, holder: str) -> None:
    """Record that a table's cycle begins: from now on it is not due, however its steps end."""
    opened = open_table(find_table(table["table"])).opened
    opened.ledger.begin(_run(opened, holder))


def end_cycle(table: CycleTable, holder: str) -> str:
    """Record what a table's cycle did, as a cycle of the library does.

    Returns:
        Its outcome.

    Raises:
        UnavailableError: Storage failed. Try again.
    """
    opened = open_table(find_table(table["table"])).opened
    run = _run(opened, holder)
    begun = opened.ledger.history(run.key).find(run.run_id)
    report = retold_cycle(opened, _plan(table, opened), holder, begun.started if begun is not None else run.started)
    for line in report.view().lines():
        _log.info("%s", line)
    end = RunEnd(opened.clock.now(), RunOutcome(report.outcome.value), report.facts(), verdict=report.why())
    opened.ledger.end(run, end)
    return report.outcome.value


def prepare_merge(table: CycleTable) -> WorkItem | None:
    """Prepare the merge of a table's cycle.

    Returns:
        The merge as a piece of work; None if nothing can be merged, or the merge pauses.

    Raises:
        InvalidRequestError: The table cannot be merged into.
        UnavailableError: Storage failed. Try again.
    """
    opened = open_table(find_table(table["table"])).opened
    plan = _plan(table, opened)
    request = plan.step(StepName.MERGE).request
    left_out = _left_out(opened, plan, plan.step(StepName.MERGE), {})
    if left_out is not None:
        _log.info("merge does not run: %s", left_out.why)
        return None
    if is_frozen(opened, request):
        return None
    division = load_job(request).divide(JobContext(opened), request)
    for line in division.report.view().lines():
        _log.info("%s", line)
    if not division.pieces:
        return None
    return _work(table, StepName.MERGE.value, request)


def cycle_step(name: str, table: CycleTable, holder: str, followed: CycleResult | None = None) -> CycleResult:
    """Run one step of a table's cycle under a lease of its own, or say why the plan leaves it out.

    Args:
        name: The step, as the plan of the cycle names it.
        table: The table, and what its entry allows.
        holder: The run's id.
        followed: What became of the step that this one follows; None if that did not run.

    Raises:
        InvalidRequestError: The plan has no such step.
        MemwalError: As ``do_work``; a step that needs a person ends the table's cycle.
    """
    opened = open_table(find_table(table["table"])).opened
    plan = _plan(table, opened)
    step = plan.step(name)
    before = {StepName(followed["step"]): JobOutcome(followed["outcome"])} if followed and followed["ran"] else {}
    left_out = _left_out(opened, plan, step, before)
    if left_out is None and is_frozen(opened, step.request):
        left_out = LeftOut(StepEnd.NOT_REACHED, JobOutcome.FROZEN, "the table is frozen")
    if left_out is not None:
        return CycleResult(step=name, ran=False, outcome=left_out.outcome.value, why=left_out.why, result=None)
    result = do_work(_work(table, name, step.request), holder)
    return CycleResult(step=name, ran=True, outcome=result["outcome"], why="", result=result)


def _run(opened: OpenTable, holder: str) -> RunRecord:
    # The scheduler's run is the cycle's: a task that is tried again finds what it recorded before.
    return replace(opened.new_run(MaintainRequest().key, holder), run_id=holder)


def _work(table: CycleTable, step: str, request: JobRequest) -> WorkItem:
    return WorkItem(
        label=f"{table['table']}: {step}",
        table=table["table"],
        job=request.info.name,
        request=request.to_json(),
        promise={},
        ticket="",
    )


def _plan(table: CycleTable, opened: OpenTable) -> CyclePlan:
    registered = find_table(table["table"])
    request = MaintainRequest(
        delete=registered.collect_garbage,
        remove_versions=registered.remove_versions,
        ignore_pauses=table["ignore_pauses"],
    )
    return plan_cycle(request, opened.settings)


def _left_out(
    opened: OpenTable, plan: CyclePlan, step: CycleStep, before: Mapping[StepName, JobOutcome]
) -> LeftOut | None:
    return plan.left_out(step, before, opened.ledger.may_run(step.request.key))


def _is_due(table: RegisteredTable, now: datetime) -> bool:
    try:
        runs = open_table(table).opened.ledger.history(MaintainRequest().key).runs
    except MemwalError as error:
        # A table that is gone or damaged fails in its own cycle, and must not keep the others from theirs.
        _log.warning("%s: due, because nobody can tell when it ran last: %s", table.name, error)
        return True
    began = runs[-1].started if runs else None
    # A minute of a schedule never comes exactly on time.
    due = began is None or now - began >= timedelta(minutes=table.every_minutes) * 0.9
    _log.info("%s: %s [last_cycle=%s]", table.name, "due" if due else "not due yet", began)
    return due
