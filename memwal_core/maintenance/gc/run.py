"""Running a garbage collection: drain, wait, delete directories, then WAL entries, then the rest."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.clock import Clock
from memwal_core.ids import RegionId
from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.items import Gate, Kind, Tally
from memwal_core.maintenance.gc.plan import KINDS, GcPlan, plan_gc
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.report import GcReport
from memwal_core.maintenance.gc.state import GcState
from memwal_core.maintenance.gc.survey import Surveyor
from memwal_core.maintenance.outcome import CheckLease, JobOutcome
from memwal_core.metrics import GC_BYTES, GC_FAILURES, GC_OBJECTS, INSTRUMENTS, KIND_LABEL, TABLE_LABEL, Instruments
from memwal_core.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GcParts:
    """What a garbage collection works with.

    Attributes:
        surveyor: Looks at the table.
        settings: What to keep.
        clock: Time.
        check_lease: Called before every commit and every deletion; raises if the lease is lost.
        metrics: Counts what was done.
    """

    surveyor: Surveyor
    settings: Settings
    clock: Clock
    check_lease: CheckLease
    metrics: Instruments = INSTRUMENTS


def collect_garbage(
    parts: GcParts, *, regions: Collection[RegionId] | None = None, dry_run: bool = False, wait: bool = False
) -> GcReport:
    """Delete what nobody needs any more; repeating it, or running several at once, does no harm.

    Records of flushed MemTables go first, by compare-and-swap. Their directories follow after the
    grace period, in this run if it waits, else in a later one, which finds in the manifest versions
    since when they are unrecorded. WAL entries go last, after another look at what refers to them.

    Args:
        parts: What to work with.
        regions: Only these regions; leftovers and leases of the table are looked at anyway.
        dry_run: Only plan.
        wait: Wait for the grace period of what this run drained.

    Returns:
        What was done, and for every object the rule that freed it or the gate that holds it.

    Raises:
        InvalidRequestError: The settings are unsafe, or a region does not exist. Nothing was touched.
        FencedError: The lease is lost. What was done so far stands.
        UnavailableError: Storage failed before anything could be planned. Run again.
    """
    run = _Run(parts, regions)
    run.plan()
    if dry_run:
        return run.report(dry_run=True)

    def work() -> GcReport:
        run.execute(wait=wait)
        return run.report(dry_run=False)

    report = parts.metrics.observe("gc", run.table_uri, work)
    _record(parts.metrics, report)
    return report


def _record(instruments: Instruments, report: GcReport) -> None:
    table = {TABLE_LABEL: report.table_uri}
    for kind, tally in report.done.items():
        instruments.count(GC_OBJECTS, tally.items, {**table, KIND_LABEL: kind.value})
        instruments.count(GC_BYTES, tally.size_bytes, {**table, KIND_LABEL: kind.value})
    instruments.count(GC_FAILURES, len(report.failures), table)


class _Run:
    """One run's plans and results."""

    def __init__(self, parts: GcParts, regions: Collection[RegionId] | None) -> None:
        self._parts = parts
        self._regions = regions
        self._began = parts.clock.monotonic()
        self._done: dict[Kind, Tally] = {}
        self._deleters: list[Deleter] = []
        self._drained = False

    @property
    def table_uri(self) -> str:
        """Of the last plan."""
        return self._plan.table_uri

    def plan(self) -> None:
        """Look and plan; what looks frozen is looked at twice, for it may have moved in between."""
        self._policy = Policy.of(self._parts.settings, self._parts.clock.now())
        self._state: GcState = self._parts.surveyor.survey(self._regions)
        self._plan: GcPlan = plan_gc(self._state, self._policy)
        if self._plan.freezes:
            self._state = self._parts.surveyor.survey(self._regions)
            self._plan = plan_gc(self._state, self._policy)

    def execute(self, *, wait: bool) -> None:
        drained = self._collect([Kind.FLUSHED_MEMTABLE])
        grace_s = self._parts.settings.gc.grace_s
        if drained and (wait or not grace_s):
            self._parts.clock.sleep(grace_s)
            self.plan()
        else:
            self._drained = drained
        self._collect([kind for kind in KINDS if kind is not Kind.FLUSHED_MEMTABLE])

    def _collect(self, kinds: Collection[Kind]) -> bool:
        """Collect some kinds in their order; return whether anything was done."""
        deleter = Deleter(self._parts.surveyor, self._policy, self._state.base, self._parts.check_lease)
        self._deleters.append(deleter)
        for kind in kinds:
            items = self._plan.of_kind(kind)
            if items:
                KINDS[kind].collect(items, deleter)
                tally = deleter.done.get(kind, Tally())
                _log.info(
                    "garbage collected [table=%s, kind=%s, items=%d, bytes=%d]",
                    self._plan.table_uri,
                    kind.value,
                    tally.items,
                    tally.size_bytes,
                )
        return bool(deleter.done)

    def report(self, *, dry_run: bool) -> GcReport:
        done: dict[Kind, Tally] = {}
        for deleter in self._deleters:
            done.update(deleter.done)
        failures = tuple(failure for deleter in self._deleters for failure in deleter.failures)
        return GcReport(
            table_uri=self._plan.table_uri,
            outcome=self._outcome(done=bool(done), failed=bool(failures), dry_run=dry_run),
            done=done,
            failures=failures,
            plan=self._plan,
            notes=tuple(self._notes(drained=Kind.FLUSHED_MEMTABLE in done)),
            due_at=self._due_at(),
            seconds=self._parts.clock.monotonic() - self._began,
        )

    def _due_at(self) -> datetime | None:
        held = any(item.reason is Gate.GRACE for item in self._plan.items)
        grace = timedelta(seconds=self._parts.settings.gc.grace_s)
        return self._parts.clock.now() + grace if held or self._drained else None

    def _outcome(self, *, done: bool, failed: bool, dry_run: bool) -> JobOutcome:
        if failed:
            return JobOutcome.CONFLICT
        if self._plan.freezes:
            return JobOutcome.BLOCKED
        if dry_run and self._plan.free:
            return JobOutcome.PLANNED
        return JobOutcome.DONE if done else JobOutcome.NOTHING_TO_DO

    def _notes(self, *, drained: bool) -> list[str]:
        gates = self._plan.held_by_gate()
        notes = []
        if Gate.SWITCHED_OFF.value in gates.get(Kind.WAL_ENTRY, {}):
            tally = gates[Kind.WAL_ENTRY][Gate.SWITCHED_OFF.value]
            notes.append(
                f"WAL collection is switched off (gc.collect_wal): {tally.items} entries with {tally.size_bytes} bytes "
                "may be free"
            )
        if drained and Gate.GRACE.value not in gates.get(Kind.DIRECTORY, {}) and self._parts.settings.gc.grace_s:
            notes.append(
                f"directories of what was drained just now go after {self._parts.settings.gc.grace_s:.0f} s, in a "
                "later run"
            )
        return notes
