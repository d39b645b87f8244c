"""Run a garbage collection: drain, wait, delete directories, then WAL entries, then the rest."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from datetime import datetime, timedelta
from functools import partial

from memwal_core.base_table import remember_versions
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.at_rest import regions_without_garbage
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.collecting.regions import collect_regions, garbage_of
from memwal_core.jobs.gc.items import Gate, Kind, Tally
from memwal_core.jobs.gc.plan import KINDS, GcPlan, plan_gc
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.report import GcReport
from memwal_core.jobs.gc.state import GcState
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.metrics import GC_BYTES, GC_FAILURES, GC_OBJECTS, KIND_LABEL, TABLE_LABEL, Instruments
from memwal_core.text import show_count
from memwal_core.writer.claim.takeover import MOST_SKEW_S

_log = logging.getLogger(__name__)


def collect_garbage(
    context: JobContext,
    sharing: Sharing | None = None,
    ahead: timedelta = timedelta(),
    *,
    regions: Collection[RegionId] | None = None,
    dry_run: bool = False,
    wait: bool = False,
) -> GcReport:
    """Delete what nothing needs any more; repeating it, or running several at once, does no harm.

    Records of flushed MemTables go first, by compare-and-swap. Their directories follow after the grace period:
    in this run if it waits, otherwise in a later one, which learns from the manifest versions when they were
    unrecorded. WAL entries go last, after another read of what refers to them.

    Args:
        context: What to work with.
        sharing: Divides the work between executors; None: this process does it.
        ahead: How far this machine's clock is ahead of the store's.
        regions: Only these regions; leftovers and leases of the table are examined anyway.
        dry_run: Only plan.
        wait: Wait for the grace period of what this run drained.

    Returns:
        What was done, and for every object the rule that freed it or the gate that keeps it.

    Raises:
        InvalidRequestError: The settings are unsafe, or a region does not exist. Nothing was touched.
        UnavailableError: Storage failed before anything could be planned. Run again.
    """
    run = _Run(context, sharing, ahead, regions)
    run.plan()
    if not dry_run:
        run.execute(wait=wait)
    return run.report(dry_run=dry_run)


def count_garbage(instruments: Instruments, report: GcReport) -> None:
    """Count what a collection did."""
    table = {TABLE_LABEL: report.table_uri}
    for kind, tally in report.done.items():
        instruments.count(GC_OBJECTS, tally.items, {**table, KIND_LABEL: kind.value})
        instruments.count(GC_BYTES, tally.size_bytes, {**table, KIND_LABEL: kind.value})
    instruments.count(GC_FAILURES, len(report.failures), table)


class _Run:
    def __init__(
        self, context: JobContext, sharing: Sharing | None, ahead: timedelta, regions: Collection[RegionId] | None
    ) -> None:
        self._context = context
        self._sharing = sharing
        self._ahead = ahead
        self._surveyor = GcSurveyor.of(context, sharing, ahead)
        self._regions = regions
        self._began = context.clock.monotonic()
        self._done: dict[Kind, Tally] = {}
        self._deleters: list[Deleter] = []
        self._drained = False

    def plan(self) -> None:
        """Survey and plan; a frozen state is read again whole, because it may have changed between two reads."""
        self._policy = Policy.of(self._context.settings, self._context.clock.now() - self._ahead)
        surveyor = self._surveyor
        self._state: GcState = surveyor.survey(self._regions, partial(regions_without_garbage, surveyor, self._policy))
        self._plan: GcPlan = plan_gc(self._state, self._policy)
        if self._plan.freezes:
            self._state = surveyor.survey(self._regions)
            self._plan = plan_gc(self._state, self._policy)

    def execute(self, *, wait: bool) -> None:
        remember_versions(self._surveyor.store, self._state.base.retained, self._context.guard)
        drained = self._collect([Kind.FLUSHED_MEMTABLE])
        grace_s = self._context.settings.gc.grace_s
        if drained and wait:
            self._wait_for_grace()
        elif drained and not grace_s:
            self.plan()
        else:
            self._drained = drained
        self._collect([kind for kind in KINDS if kind is not Kind.FLUSHED_MEMTABLE])

    def _wait_for_grace(self) -> None:
        """Wait until what was drained is free by the times of the store, whose clock may be ahead of this one."""
        drained = {item.path for item in self._plan.of_kind(Kind.FLUSHED_MEMTABLE)}
        self._context.clock.sleep(self._context.settings.gc.grace_s)
        self.plan()
        left_s = self._grace_left_s(drained)
        if 0 < left_s <= MOST_SKEW_S:
            self._context.clock.sleep(left_s)
            self.plan()

    def _grace_left_s(self, drained: Collection[str]) -> float:
        ages = [
            self._policy.age_s(moment)
            for region in self._state.regions
            for name, moment in region.drained.items()
            if generation_path(region.region_id, name) in drained
        ]
        return self._policy.gc.grace_s - min(ages, default=math.inf)

    def _collect(self, kinds: Collection[Kind]) -> bool:
        """Collect some kinds in their order; return whether anything was done."""
        context = self._context
        deleter = Deleter(self._surveyor, self._policy, self._state.base, context.guard, context.progress)
        self._deleters.append(deleter)
        elsewhere = self._collect_on_executors(kinds, deleter)
        for kind in kinds:
            items = [item for item in self._plan.of_kind(kind) if item.region_id not in elsewhere]
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

    def _collect_on_executors(self, kinds: Collection[Kind], deleter: Deleter) -> frozenset[RegionId]:
        """Let executors collect what belongs to regions, each in the order of a whole run; return those regions."""
        sharing = self._sharing
        if sharing is None or not sharing.may_write_elsewhere:
            return frozenset()
        items = [item for item in self._plan.free if item.kind in kinds and item.region_id is not None]
        regions = sorted({item.region_id for item in items if item.region_id is not None})
        shares = [garbage_of(items, set(each), self._policy, self._state.base) for each in sharing.divide(regions)]
        deleter.guard()
        for found in sharing.run("collect regions", collect_regions, shares, regions=lambda each: each.regions):
            deleter.take_over(found.done, found.failures)
        return frozenset(regions)

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
            seconds=self._context.clock.monotonic() - self._began,
            place=self._sharing.place if self._sharing is not None else None,
        )

    def _due_at(self) -> datetime | None:
        kept = any(item.reason is Gate.GRACE for item in self._plan.items)
        grace = timedelta(seconds=self._context.settings.gc.grace_s)
        return self._context.clock.now() + grace if kept or self._drained else None

    def _outcome(self, *, done: bool, failed: bool, dry_run: bool) -> JobOutcome:
        if failed:
            return JobOutcome.CONFLICT
        if self._plan.freezes.need_person:
            return JobOutcome.BLOCKED
        if dry_run and self._plan.free:
            return JobOutcome.PLANNED
        if self._plan.freezes.damaged:
            return JobOutcome.PARTIAL
        return JobOutcome.DONE if done else JobOutcome.NOTHING_TO_DO

    def _notes(self, *, drained: bool) -> list[str]:
        gates = self._plan.kept_by_gate()
        notes = []
        if ahead_s := self._ahead.total_seconds():
            notes.append(f"the clock of this machine is {ahead_s:.0f} s ahead of the store's, which told the ages")
        if Gate.SWITCHED_OFF.value in gates.get(Kind.WAL_ENTRY, {}):
            tally = gates[Kind.WAL_ENTRY][Gate.SWITCHED_OFF.value]
            notes.append(
                f"WAL collection is switched off (gc.collect_wal) for {show_count(tally.items, 'entry')}, "
                f"{tally.size_bytes} bytes, that may be free"
            )
        if drained and Gate.GRACE.value not in gates.get(Kind.DIRECTORY, {}) and self._context.settings.gc.grace_s:
            notes.append(f"drained directories go after {self._context.settings.gc.grace_s:.0f} s, in a later run")
        return notes
