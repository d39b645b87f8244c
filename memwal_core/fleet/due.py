"""Whether the cycle of a registered table is due, and what it may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import LeaseHeldError
from memwal_core.coordination.ledger import RunOutcome, RunRecord, RunVerdict
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.cycle.plan import plan_cycle
from memwal_core.jobs.cycle.quiet import LOOK_AGAIN_S
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.job import Division
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.runner import load_job
from memwal_core.jobs.sharing.dispatch import dispatch_plan
from memwal_core.registry import RegisteredTable

_EARLY = 0.9
"""Share of the time between two cycles after which the next is due: a minute of a schedule never comes on time."""

_WORTH_REPEATING = {RunOutcome.CONFLICT, RunOutcome.FAILED, RunOutcome.INTERRUPTED, RunOutcome.BUSY}
"""Ends of a cycle after which a table that is seldom maintained does not wait for its next turn."""


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a cycle is due, and why."""

    is_due: bool
    why: str


UnderWay = Callable[[RunRecord], bool]
"""Tells whether a cycle that has not ended may be under way still; else it is one that died."""


def never_under_way(_: RunRecord) -> bool:
    """Take no unended cycle for one that works: whoever asks runs all cycles itself."""
    return False


def cycle_due(
    table: RegisteredTable, opened: OpenTable, now: datetime, *, is_under_way: UnderWay = never_under_way
) -> Due:
    """Tell from the history of a table whether its next cycle is due. Reads the ledger.

    Args:
        table: Its entry.
        opened: The table.
        now: The time.
        is_under_way: Of a cycle that has not ended: whether the next one waits for it.

    Raises:
        CorruptionError: The history cannot be read.
    """
    runs = opened.ledger.history(MaintainRequest().key).runs
    if not runs:
        return Due(True, "no cycle ran yet")
    last, began = runs[-1], runs[-1].started
    if not last.has_ended and is_under_way(last):
        return Due(False, f"its cycle has been running since {began:%Y-%m-%d %H:%M:%S} UTC")
    wait, often = timedelta(minutes=table.every_minutes) * _EARLY, f"every {table.every_minutes:g} minutes"
    retry = timedelta(seconds=opened.settings.ledger.cooldown_s)
    if retry < wait and (not last.has_ended or last.outcome in _WORTH_REPEATING):
        how = f"ended with {last.outcome.value}" if last.has_ended else "did not end"
        wait, often = retry, f"{how}, and is tried again after {retry.total_seconds():g} s"
    # A cycle from the future is another clock's; waiting for it could take forever.
    due = not timedelta(0) <= now - began < wait
    return Due(due, f"the last cycle began at {began:%Y-%m-%d %H:%M:%S} UTC, {often}")


def work_due(opened: OpenTable, request: MaintainRequest) -> Due:
    """Tell whether a cycle would have anything to do. Plans one step after the other, and stops at the first that has.

    A plan that reads too much for a worker is due every hour.

    Raises:
        MemwalError: A plan could not be made, as for a run of its job.
    """
    active = [freeze for freeze in opened.freezes.active() if freeze.stops_table]
    if active:
        return Due(False, "the table is frozen: `memwal thaw` says why, and ends it")
    plan = plan_cycle(request, opened.settings)
    # One that follows another has nothing to do without it; one that only plans changes nothing.
    for step in (each for each in plan.steps if each.follows is None and not each.request.dry_run):
        past = opened.ledger.may_run(step.request.key)
        if plan.left_out(step, {}, past) is not None:
            continue
        job, context = load_job(step.request), JobContext(opened)
        elsewhere = dispatch_plan(job.planning(context, step.request), opened.settings.dispatch)
        if elsewhere is not None:
            if past.since_success_s is None or not 0 <= past.since_success_s < LOOK_AGAIN_S:
                return Due(True, f"{step.name.value} has not looked for {LOOK_AGAIN_S:.0f} s; {elsewhere}")
            continue
        division = job.divide(context, step.request)
        if not is_idle(division):
            return Due(True, f"{step.name.value}: {division.report.why()}")
        if left_its_lease(opened, step.request.key, past):
            return Due(True, f"{step.name.value}: its last run died, and left its lease behind")
    return Due(False, "no step of its cycle has anything to do")


def is_idle(division: Division) -> bool:
    """Return whether a planned job needs no run. What only a person can resolve does: the run tells it."""
    nothing = division.report.outcome in (JobOutcome.NOTHING_TO_DO, JobOutcome.PLANNED)
    return nothing and not division.pieces and division.blocked is None


def left_its_lease(opened: OpenTable, key: JobKey, past: RunVerdict) -> bool:
    """Return whether the last run of a job died with a lease that is over: it counts as stuck until another takes it.

    Reads the lease only if that run has no end.
    """
    if not past.is_open:
        return False
    try:
        stored = opened.leases.require_free(key, "")  # Nobody is called like that.
    except LeaseHeldError:
        return False
    return stored is not None and not stored.document.released


def cycle_request(table: RegisteredTable, *, dry_run: bool = False, ignore_pauses: bool = False) -> MaintainRequest:
    """Return the cycle that the entry of a table allows."""
    return MaintainRequest(
        dry_run=dry_run,
        delete=table.collect_garbage,
        remove_versions=table.remove_versions,
        ignore_pauses=ignore_pauses,
        checks=table.checks,
        suites=table.suites,
    )
