"""Flush idle regions: look, decide, look once more, claim, replay, flush, give back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count

from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.failpoints import Failpoint
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.flush_idle.plan import IdleBounds, IdlePlan, IdleReason, IdleVerdict, judge_region, plan_idle
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.flush_idle.survey import SignReader
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.metrics import FLUSH_REGIONS, FLUSH_ROWS, TABLE_LABEL, Instruments
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.writer.flush_region import RegionFlush, flush_region

_log = logging.getLogger(__name__)

FLUSH_PLANNED = Failpoint("flush_idle.planned")
FLUSH_DECIDED = Failpoint("flush_idle.decided")


def flush_idle_regions(
    context: JobContext, request: FlushRequest, ahead: Callable[[], timedelta] = timedelta
) -> FlushReport:
    """Flush the regions whose writer is gone, or all that were asked for.

    Regions are independent: what one of them meets is reported and keeps no other from being flushed. Two runs at
    once do no harm; where both claim a region, the first claim wins.

    Args:
        context: What to work with.
        request: Which regions, and when.
        ahead: Returns how far this machine's clock is ahead of the store's; called once if a region is due.

    Raises:
        InvalidRequestError: The table has no such region.
        FencedError: The lease is lost. What was flushed so far stands.
        UnavailableError: Storage failed before anything could be decided. Run again.
    """
    run = _Run(context, request)
    return run.planned() if request.dry_run else run.execute(ahead)


def count_flushes(instruments: Instruments, report: FlushReport) -> None:
    """Count what was flushed."""
    table = {TABLE_LABEL: report.table_uri}
    instruments.count(FLUSH_REGIONS, len(report.flushed), table)
    instruments.count(FLUSH_ROWS, report.rows, table)


@dataclass(slots=True)
class _Ends:
    """What became of the regions that were due."""

    flushed: list[RegionFlush] = field(default_factory=list)
    left: dict[RegionId, str] = field(default_factory=dict)
    failures: dict[RegionId, str] = field(default_factory=dict)
    unflushable: dict[RegionId, str] = field(default_factory=dict)


class _Run:
    def __init__(self, context: JobContext, request: FlushRequest) -> None:
        self._context = context
        self._request = request
        self._bounds = IdleBounds.of(context.settings, due_only=request.due_only, fence=request.fence)
        self._began = context.clock.monotonic()
        self._ends = _Ends()
        self._ahead = timedelta()

    def planned(self) -> FlushReport:
        plan = self._plan()
        return self._report(plan, JobOutcome.PLANNED if plan.due else JobOutcome.NOTHING_TO_DO)

    def execute(self, ahead: Callable[[], timedelta]) -> FlushReport:
        plan = self._plan()
        self._ends.unflushable.update({each.region_id: each.evidence for each in plan.having(IdleReason.DAMAGED)})
        self._context.failpoints.hit(FLUSH_PLANNED)
        if plan.due:
            self._ahead = ahead()
        ended = count(1)

        def flush(region: IdleVerdict) -> None:
            self._flush(region)
            self._context.progress("regions", next(ended), len(plan.due))

        map_concurrently(flush, plan.due, self._context.settings.flush.concurrency)
        return self._report(plan, self._outcome())

    def _plan(self) -> IdlePlan:
        reader = self._reader()
        return plan_idle(self._context.base.uri, reader.survey(self._request.regions), reader.now, self._bounds)

    def _reader(self) -> SignReader:
        context = self._context
        concurrency = context.settings.storage.concurrency
        now = context.clock.now() - self._ahead
        return SignReader(context.base, context.manifests, self._bounds, now, concurrency)

    def _flush(self, planned: IdleVerdict) -> None:
        """Look once more, since a region may have waited for its turn, and flush it if it is still due."""
        context, region_id = self._context, planned.region_id
        context.guard()
        try:
            reader = replace(self._reader(), concurrency=1)
            verdict = judge_region(reader.signs_of(region_id), reader.now, self._bounds)
            if not verdict.reason.flushes:
                self._ends.left[region_id] = verdict.reason.value
                return
            context.failpoints.hit(FLUSH_DECIDED)
            done = flush_region(
                context.base,
                region_id,
                expected_epoch=verdict.writer_epoch,
                failpoints=context.failpoints,
            )
        except (ConflictError, FencedError) as error:
            self._ends.left[region_id] = error.what
        except (UnavailableError, StoreRefusedError, CommitUnknownError) as error:
            _log.warning("region not flushed, its rows stay in the WAL [region_id=%s]: %s", region_id, error)
            self._ends.failures[region_id] = str(error)
        except (CorruptionError, InvalidRequestError) as error:
            _log.error("region cannot be flushed [region_id=%s]: %s", region_id, error)
            self._ends.unflushable[region_id] = str(error)
        else:
            _log.info("region flushed [region_id=%s, rows=%d, why=%s]", region_id, done.rows, verdict.reason.value)
            self._ends.flushed.append(done)

    def _outcome(self) -> JobOutcome:
        ends = self._ends
        if ends.failures:
            return JobOutcome.CONFLICT
        if ends.unflushable:
            # A cycle goes on with the other regions.
            return JobOutcome.PARTIAL if self._request.due_only else JobOutcome.BLOCKED
        return JobOutcome.DONE if ends.flushed else JobOutcome.NOTHING_TO_DO

    def _report(self, plan: IdlePlan, outcome: JobOutcome) -> FlushReport:
        ends = self._ends
        return FlushReport(
            table_uri=plan.table_uri,
            outcome=outcome,
            plan=plan,
            seconds=self._context.clock.monotonic() - self._began,
            flushed=tuple(sorted(ends.flushed, key=lambda each: each.region_id)),
            left=ends.left,
            failures=ends.failures,
            unflushable=ends.unflushable,
        )
