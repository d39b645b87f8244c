"""The cycle of one table as tasks: which tables are due, and each step as the plan of the cycle says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import TypedDict

from memwal_core.airflow.defaults import RUN_TIMEOUT, most_mapped, run_of, shown_label
from memwal_core.airflow.tasks.reminders import Reminders
from memwal_core.airflow.tasks.tables import find_table, open_table, storage_options
from memwal_core.airflow.tasks.work import (
    TableChange,
    WorkItem,
    WorkResult,
    changed_meanwhile,
    is_frozen,
    request_of,
    require_handed,
)
from memwal_core.clock import Clock, SystemClock
from memwal_core.coordination.ledger import RunEnd, RunOutcome, RunRecord
from memwal_core.errors import InvalidRequestError
from memwal_core.fleet import Due, Fleet, RoundEnd, TableRound, broken_round, cycle_request, is_idle, left_its_lease
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.cycle.plan import CyclePlan, CycleStep, LeftOut, StepEnd, StepName, plan_cycle
from memwal_core.jobs.cycle.report_from_histories import retold_cycle, runs_of_steps
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.job import Piece
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.jobs.runner import load_job
from memwal_core.jobs.sharing.dispatch import Dispatch, dispatch, dispatch_plan
from memwal_core.registry import RegisteredTable, require_registry
from memwal_core.registry.addresses import is_line
from memwal_core.rng import system_rng
from memwal_core.settings import load_settings

CYCLE_DAG = "memwal_maintain"

_OUTCOMES_OF_WORK: Mapping[RunOutcome, JobOutcome] = MappingProxyType(
    {
        RunOutcome.DONE: JobOutcome.DONE,
        RunOutcome.PARTIAL: JobOutcome.PARTIAL,
        RunOutcome.BLOCKED: JobOutcome.BLOCKED,
        RunOutcome.RUNNING: JobOutcome.CONFLICT,
        RunOutcome.INTERRUPTED: JobOutcome.CONFLICT,
    }
)
"""What runs that may have changed the table mean to a task that finds nothing left to do."""

_NOTHING_SAID: Mapping[str, object] = MappingProxyType({})

_LAYING_OUT_S = 5.0
"""Longest wait for the next task to be laid out; ``airflow dags test`` lays out none meanwhile."""

_LOOK_S = 0.5

_log = logging.getLogger(__name__)


class CycleTable(TypedDict):
    """One table of a run.

    Attributes:
        table: Its name; the registry says what its cycle may do.
        ignore_pauses: Whether jobs run that pause because they kept failing.
    """

    label: str
    table: str
    ignore_pauses: bool


class CycleResult(TypedDict):
    """What became of a step that ran."""

    step: str
    outcome: str
    result: WorkResult


RunLives = Callable[[str], bool]
"""Tells whether a run of the cycle's DAG, by its id, is queued or running."""


def choose_cycle_tables(
    names: Sequence[str],
    *,
    by_schedule: bool,
    run_lives: RunLives = lambda _: True,
    ignore_pauses: bool = False,
    reminders: Reminders | None = None,
    clock: Clock | None = None,
) -> list[CycleTable]:
    """Return the registered tables whose cycle is to run.

    By schedule all tables are asked side by side, each for a limited time, and those whose cycle is not due, runs
    already or has nothing to do are left out, as are frozen ones. One that does not answer, and an entry that is not
    understood, are not: their own tasks fail, and no other's; where the table cannot be opened, that is repeated only
    every ``fleet.remind_s``. A cycle that has no end, whose run a person has marked or deleted, keeps no table from its
    next one.

    Args:
        names: Only these, whether due or not; empty = all that are not excluded.
        by_schedule: Leave out tables that need no cycle now.
        run_lives: Asked about cycles that have begun and not ended. Called by several threads.
        ignore_pauses: Run jobs that pause because they kept failing.
        reminders: For which tables people were called; a run by schedule brings them up to date. None were if None.
        clock: The system's if None.

    Raises:
        InvalidRequestError: No registry is configured, a name is not registered, or these are more tables than Airflow
            maps. By schedule, those that it does not map are left to later runs, which draw lots.
    """
    registry = require_registry()
    chosen = registry.choose(names)
    broken = [] if names else [broken_round(entry) for entry in registry.broken]
    left_out = set()
    if by_schedule:
        known = reminders if reminders is not None else Reminders()
        left_out = _left_alone(chosen, broken, run_lives, known, clock if clock is not None else SystemClock())
    found = [
        CycleTable(label=name, table=name, ignore_pauses=ignore_pauses)
        for name in [*(table.name for table in chosen), *(entry.table for entry in broken)]
        if name not in left_out
    ]
    if len(found) > (most := most_mapped()):
        raise InvalidRequestError(
            "these are more tables than Airflow maps at once",
            remedy="name fewer, or raise core.max_map_length in Airflow's configuration",
            tables=len(found),
            most=most,
        )
    return found


def _left_alone(
    tables: Sequence[RegisteredTable],
    broken: Sequence[TableRound],
    run_lives: RunLives,
    reminders: Reminders,
    clock: Clock,
) -> set[str]:
    """Return the tables that get no tasks now."""

    def is_under_way(cycle: RunRecord) -> bool:
        dag, run = run_of(cycle.holder)
        is_recent = timedelta(0) <= clock.now() - cycle.started < RUN_TIMEOUT
        # Of a cycle that is not Airflow's nobody knows whether it lives; leases keep the two apart.
        return is_recent and dag == CYCLE_DAG and run_lives(run)

    settings = load_settings().fleet
    fleet = Fleet(options=storage_options, settings=settings, clock=clock)
    found = {
        **dict(fleet.survey(tables, is_under_way=is_under_way, plan=True)),
        **{entry.table: entry for entry in broken},
    }
    closed = [name for name, each in found.items() if isinstance(each, TableRound) and each.end is RoundEnd.FAILED]
    called = reminders.call(closed, clock.now(), timedelta(seconds=settings.remind_s))
    left_alone = {name for name, each in found.items() if isinstance(each, Due) and not each.is_due}
    left_alone |= set(closed) - called
    # By lot, so that none comes last every time.
    due = system_rng().sample(waiting := [name for name in found if name not in left_alone], len(waiting))
    later = set(sorted(due, key=lambda name: name not in called)[most_mapped() :])
    reminders.forget(later)
    if later:
        _log.warning(
            "%d tables are due, more than Airflow maps at once; %d are left to later runs: raise core.max_map_length",
            len(due),
            len(later),
        )
    for name, each in found.items():
        verdict = "left alone" if name in left_alone else "due"
        told = (
            f"; its task failed less than {settings.remind_s:g} s ago" if name in left_alone and name in closed else ""
        )
        _log.info("%s: %s: %s%s", name, verdict, each.why, told)
    return left_alone | later


def begin_cycle(table: CycleTable, holder: str) -> list[str]:
    """Record that a table's cycle begins: from now on it is not due, however its steps end.

    A task that is tried again finds what it recorded before; one that is cleared after the end begins a new cycle.

    Returns:
        The steps that need no task, because whatever the others do, this cycle has none of them.
    """
    opened = _opened(table)
    known = _recorded(opened, holder)
    if known is None or known.has_ended:
        begun = opened.new_run(MaintainRequest().key, holder)
        opened.ledger.begin(begun if known is not None else replace(begun, run_id=holder))
    plan = _plan(table, opened)
    # The first one always has its task, after which all others come.
    standing = (step for step in plan.steps[1:] if step.follows is None)
    left_out = {step.name.value: plan.left_out(step, {}, opened.ledger.may_run(step.request.key)) for step in standing}
    needless = {name: found.why for name, found in left_out.items() if found and found.end is StepEnd.SKIPPED}
    for name, why in needless.items():
        _log.info("%s: no %s: %s", table["table"], name, why)
    return list(needless)


def await_tasks(count: Callable[[], int], expected: int, clock: Clock | None = None) -> None:
    """Wait until the tasks that a cycle does without are there, for Airflow skips no others.

    The scheduler lays out one step of a mapped group after the other, while the first one runs already. A task that
    comes too late finds by itself that it is not needed, so the wait ends when no more come.

    Args:
        count: Counts those that are there.
        expected: How many there will be.
        clock: The system's if None.
    """
    time = clock if clock is not None else SystemClock()
    known, since = 0, time.monotonic()
    while (found := count()) < expected and time.monotonic() - since < _LAYING_OUT_S:
        if found > known:
            known, since = found, time.monotonic()
        time.sleep(_LOOK_S)


def end_cycle(
    table: CycleTable,
    holder: str,
    left_out: Mapping[str, object] = _NOTHING_SAID,
    held: Collection[str] = (),
) -> str:
    """Record what a table's cycle did, as a cycle of the library does.

    Args:
        table: The table.
        holder: The run's id.
        left_out: Step -> why its task did nothing, as it said. Users may change it: what is no line is not told.
        held: Steps whose tasks met another run's lease.

    Returns:
        Its outcome.
    """
    opened = _opened(table)
    run = _recorded(opened, holder) or opened.new_run(MaintainRequest().key, holder)
    said = {step: why for step, why in left_out.items() if isinstance(why, str) and is_line(why)}
    report = retold_cycle(opened, _plan(table, opened), holder, run.started, said, held)
    for line in report.view().lines():
        _log.info("%s", line)
    outcome = load_job(MaintainRequest()).recorded_as(report)
    end = RunEnd(opened.clock.now(), outcome, report.facts(), verdict=report.why())
    opened.ledger.end(run, end)
    return report.outcome.value


def prepare_step(name: str, table: CycleTable, followed: CycleResult | None = None) -> WorkItem | LeftOut:
    """Plan one step of a table's cycle, and choose who does it. Changes nothing.

    Args:
        name: The step, as the plan of the cycle names it.
        table: The table, and what its entry allows.
        followed: What became of the step that this one follows; None if that did not run.

    Returns:
        The step as a piece of work, which takes a lease of its own; or why it does not run.

    Raises:
        InvalidRequestError: The plan has no such step, or the job does not fit the table.
    """
    opened = _opened(table)
    plan = _plan(table, opened)
    step = plan.step(name)
    past = opened.ledger.may_run(step.request.key)
    left_out = plan.left_out(step, _became(followed), past)
    if left_out is None and is_frozen(opened, step.request):
        left_out = LeftOut(StepEnd.NOT_REACHED, JobOutcome.FROZEN, "the table is frozen")
    if left_out is not None:
        return left_out
    job, context = load_job(step.request), JobContext(opened)
    elsewhere = dispatch_plan(job.planning(context, step.request), opened.settings.dispatch)
    if elsewhere is not None:
        _log.info("%s: %s, %s", table["table"], name, elsewhere)
        if step.request.dry_run:
            return LeftOut(StepEnd.SKIPPED, JobOutcome.PLANNED, f"it would only plan, and {elsewhere}")
        return _item(table, step, elsewhere, planned=False)
    division = job.divide(context, step.request)
    for line in division.report.view().lines():
        _log.info("%s", line)
    is_needless = is_idle(division) and not step.every_s and not left_its_lease(opened, step.request.key, past)
    if step.request.dry_run or is_needless:
        outcome = division.report.outcome if step.request.dry_run else JobOutcome.NOTHING_TO_DO
        return LeftOut(StepEnd.SKIPPED, outcome, division.report.why())
    sent = dispatch(step.request, job.size(division.report), opened.settings.dispatch)
    _log.info("%s: %s, %s", table["table"], name, sent)
    return _item(table, step, sent, planned=True)


def done_before(name: str, table: CycleTable, holder: str) -> tuple[WorkItem, WorkResult] | None:
    """Return what an earlier attempt of a step's task did, of which nothing is left to do: its worker died.

    Where its process died, too, what it did is not known: the outcome is a conflict, as of an application that left no
    record.

    Returns:
        The work and its result; None if no earlier attempt did anything.

    Raises:
        FrozenError: An earlier attempt may have found why the table is frozen, and told nobody.
    """
    registered, opened = find_table(table["table"]), _opened(table)
    plan, begun = _plan(table, opened), _recorded(opened, holder)
    step = plan.step(name)
    runs = runs_of_steps(opened, plan, holder, begun.started)[step.name] if begun is not None else ()
    outcome = _OUTCOMES_OF_WORK.get(runs[-1].outcome) if runs else None
    if outcome is JobOutcome.CONFLICT or (runs and runs[-1].outcome is RunOutcome.FROZEN):
        opened.freezes.require_thawed()
    if outcome is None:
        return None
    _log.info("%s: an earlier attempt did %s: %s", table["table"], name, runs[-1].verdict or "it left no word")
    item = _item(table, step, Dispatch(False, "it was done before"), planned=True)
    facts = dict(runs[-1].facts)
    return item, WorkResult(
        table=registered.name, uri=registered.uri, job=step.job, outcome=outcome.value, facts=facts, due_at=""
    )


def _item(table: CycleTable, step: CycleStep, sent: Dispatch, *, planned: bool) -> WorkItem:
    return WorkItem(
        label=f"{table['table']}: {step.name.value}",
        table=table["table"],
        job=step.job,
        request=step.request.to_json(),
        promise={},
        ticket="",
        to_spark=sent.to_spark,
        where=str(sent),
        planned=planned,
    )


def require_passed(item: WorkItem, outcome: str) -> None:
    """Fail a step of the quality gate that found what needs a person, as ``memwal_quality`` does.

    An audit does not fail: what it held back is left out of the merge, and a signal tells of it.

    Raises:
        CorruptionError: A check of the table failed; the remedy names the runbook.
    """
    request, is_in_doubt = request_of(item), outcome in (JobOutcome.BLOCKED.value, JobOutcome.CONFLICT.value)
    if is_in_doubt and isinstance(request, QualityRequest) and request.stage is Stages.AFTER:
        context = JobContext(open_table(find_table(item["table"])).opened)
        load_job(request).verify(context, [Piece(item["table"], request)], [])


def step_result(name: str, result: WorkResult) -> CycleResult:
    """Return what became of a step, for the one that follows it."""
    return CycleResult(step=name, outcome=result["outcome"], result=result)


def change_of(result: WorkResult) -> TableChange:
    """Return what the event of an asset says about the table that a step changed."""
    return TableChange(table=result["table"], uri=result["uri"], summary=result["outcome"], facts=result["facts"])


def label_of(table: CycleTable) -> str:
    """Return the name that the tasks of a table's cycle show.

    Raises:
        InvalidRequestError: It is no table that ``choose_cycle_tables`` returned.
    """
    require_handed([table], CycleTable, by="tables")
    return shown_label(table["label"])


def _opened(table: CycleTable) -> OpenTable:
    require_handed([table], CycleTable, by="tables")
    return open_table(find_table(table["table"])).opened


def _became(followed: CycleResult | None) -> Mapping[StepName, JobOutcome]:
    if followed is None:
        return {}
    require_handed([followed], CycleResult, by=StepName.COMPACT)
    try:
        return {StepName(followed["step"]): JobOutcome(followed["outcome"])}
    except ValueError:
        raise changed_meanwhile(followed, CycleResult, StepName.COMPACT) from None


def _recorded(opened: OpenTable, holder: str) -> RunRecord | None:
    """Return the last cycle that a run of the scheduler recorded; None if it is forgotten, or was never recorded."""
    runs = opened.ledger.history(MaintainRequest().key).runs
    return next((run for run in reversed(runs) if run.holder == holder), None)


def _plan(table: CycleTable, opened: OpenTable) -> CyclePlan:
    request = cycle_request(find_table(table["table"]), ignore_pauses=table["ignore_pauses"])
    return plan_cycle(request, opened.settings)
