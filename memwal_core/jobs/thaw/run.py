"""Freeze a table by hand, and carry out a person's choice that ends a freeze."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from memwal_core.coordination.freeze import (
    Choice,
    Freeze,
    FreezeCause,
    FreezeEnd,
    MaintenanceRecord,
    Sighting,
    compare,
)
from memwal_core.coordination.freeze.watch import look
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.format.document import is_name
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.plan import ThawPlan, memory_after, plan_thaw
from memwal_core.jobs.thaw.report import ThawReport
from memwal_core.region.census import CensusTaker
from memwal_core.region.quarantine import QuarantineStore

FREEZE = JobKey("freeze")
THAW = JobKey("thaw")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decides about a frozen table.

    Attributes:
        choice: One that the cause offers, for example ``accept``; ``docs/freeze.md`` says what each does.
        by: Who decides.
        cause: Which cause it is about; None if there is only one.
        reason: Why, for the history.

    Raises:
        InvalidRequestError: There is no such choice or cause, or nobody decides.
    """

    choice: Choice | str
    by: str
    cause: FreezeCause | str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no choice and no cause."""
        for name, value, kind in (("choice", self.choice, Choice), ("cause", self.cause, FreezeCause)):
            if value not in list(kind) and not (name == "cause" and value is None):
                raise InvalidRequestError(
                    f"there is no such {name}",
                    remedy="name a known one",
                    found=value,
                    known=[str(each) for each in kind],
                )
        if not is_name(self.by):
            raise InvalidRequestError("a decision needs a person", remedy="say who decides, in UTF-8", by=self.by)


def require_reason(reason: object) -> None:
    """Refuse a freeze without a reason (``InvalidRequestError``)."""
    if not is_name(reason):
        raise InvalidRequestError(
            "a freeze needs a reason", remedy="say why, in UTF-8, for whoever finds the table frozen", reason=reason
        )


def freeze_by_hand(opened: OpenTable, reason: str, by: str) -> Freeze:
    """Freeze a table, and record who did and why.

    Raises:
        InvalidRequestError: No reason is given, or nobody who freezes.
        ObjectNotFoundError: The table was dropped; nothing was written.
        UnavailableError: Storage failed; the table may not be frozen. Try again.
    """
    require_reason(reason)
    if not is_name(by):
        raise InvalidRequestError("a freeze needs a person", remedy="say who freezes the table, in UTF-8", by=by)
    opened.require_there()
    with opened.ledger.run(opened.new_run(FREEZE, by)) as run:
        freeze = opened.freezes.add(FreezeCause.BY_HAND, {"reason": reason}, by)
        run.verdict = f"frozen by hand: {reason}"
    return freeze


def explain_freezes(opened: OpenTable) -> ThawReport:
    """Return why a table is frozen, and what can be chosen. Changes nothing."""
    active = opened.freezes.active()
    return ThawReport(opened.uri, JobOutcome.FROZEN if active else JobOutcome.NOTHING_TO_DO, active)


def thaw(opened: OpenTable, decision: Decision, *, dry_run: bool = False) -> ThawReport:
    """End the freezes of one cause with a person's choice, and record it.

    First the merge progress that the choice stands for is committed, then the freeze ends: should this stop in
    between, the table stays frozen, and the same call finishes it.

    Args:
        opened: The table.
        decision: What was decided, and by whom.
        dry_run: Only say what would happen.

    Raises:
        InvalidRequestError: The choice does not fit what froze the table.
        ConflictError: Another commit, or another decision, came first. Try again.
        UnavailableError: Storage failed. Try again; what was done stands.
    """
    record = opened.freezes.load()
    if record is None or not record.active:
        return ThawReport(opened.uri, JobOutcome.NOTHING_TO_DO, ())
    if dry_run:
        return _Thaw(opened, decision, record).run(dry_run=True)
    with opened.ledger.run(opened.new_run(THAW, decision.by)) as run:
        report = _Thaw(opened, decision, record).run(dry_run=False)
        run.verdict = report.why()
        run.facts.update({**report.facts(), "reason": decision.reason})
    return report


class _Thaw:
    def __init__(self, opened: OpenTable, decision: Decision, record: MaintenanceRecord) -> None:
        self._opened = opened
        self._decision = decision
        self._choice = Choice(decision.choice)
        self._cause = None if decision.cause is None else FreezeCause(decision.cause)
        self._record = record
        self._began = opened.clock.monotonic()

    def run(self, *, dry_run: bool) -> ThawReport:
        opened, decision = self._opened, self._decision
        seen = look(opened.base, opened.manifests, self._record.memory)
        known = {each.subject for each in self._record.active}
        if (FreezeCause.INDEX_GONE, None) in known:
            known.add((FreezeCause.INDEX_MADE_ANEW, None))  # It was gone, and is there again: one event, one decision.
        more = [each for each in compare(self._record.memory, seen) if (each.cause, each.region_id) not in known]
        if more and not dry_run:
            opened.freezes.freeze(more, "thaw")
        census = CensusTaker(opened.base.store, opened.manifests, opened.settings.storage.concurrency)
        plan = plan_thaw(self._record, seen, census.read(seen.listed or ()), self._choice, self._cause)
        if plan.obstacles or dry_run:
            outcome = JobOutcome.BLOCKED if plan.obstacles else JobOutcome.PLANNED
            return self._report(plan, outcome, plan.stays)
        version = self._commit(plan, seen)
        if plan.given_up:
            census.forget(plan.given_up)
            for region_id in plan.given_up:
                QuarantineStore(opened.base.store).forget(region_id)
        end = FreezeEnd(self._choice, decision.by, opened.clock.now(), decision.reason)
        after = look(opened.base, opened.manifests, self._record.memory)

        def change(record: MaintenanceRecord) -> MaintenanceRecord:
            memory = memory_after(record.memory, after, plan.ends, self._choice)
            return replace(record.thawed(plan.ends, end), memory=memory)

        changed = opened.freezes.update(change)
        _log.info("thawed [table=%s, choice=%s, by=%s]", opened.uri, self._choice, decision.by)
        return replace(self._report(plan, JobOutcome.DONE, changed.active), version=version)

    def _commit(self, plan: ThawPlan, seen: Sighting) -> int:
        if not plan.progress or seen.table is None:
            return 0
        base = self._opened.base
        message = f"thaw with {plan.choice.value}: progress of {len(plan.progress)} regions"
        return base.declare_progress(plan.progress, read=base.state(seen.table.version), message=message)

    def _report(self, plan: ThawPlan, outcome: JobOutcome, active: tuple[Freeze, ...]) -> ThawReport:
        return ThawReport(
            table_uri=self._opened.uri,
            outcome=outcome,
            active=active,
            ended=plan.ends,
            choice=plan.choice,
            regions=plan.regions,
            obstacles=plan.obstacles,
            seconds=self._opened.clock.monotonic() - self._began,
        )
