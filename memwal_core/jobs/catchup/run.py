"""Run index catch-up: extend every index that lacks rows, then record the coverage that Lance did not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from memwal_core.base_table import BaseTable, TableState, list_fragments, read_coverage, record_catchup
from memwal_core.base_table.indexes.outdated import outdated_indexes
from memwal_core.errors import (
    BareExecutorError,
    CommitUnknownError,
    ConflictError,
    FencedError,
    FrozenError,
    MemwalError,
)
from memwal_core.failpoints import Failpoint
from memwal_core.ids import RegionId
from memwal_core.jobs.catchup.extend import (
    CATCHUP_EXTENDED,
    CATCHUP_SURVEYED,
    RETRYABLE,
    Extension,
    extend,
    model_of,
    require_extended,
)
from memwal_core.jobs.catchup.on_executors import extend_on_executors
from memwal_core.jobs.catchup.plan import CatchupPlan, CatchupSurvey, IndexPlan, plan_catchup
from memwal_core.jobs.catchup.report import CatchupReport, IndexReport, IndexResult
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.metrics import CATCHUP_INDEXES, CATCHUP_ROWS, KIND_LABEL, OUTCOME_LABEL, TABLE_LABEL, Instruments

_log = logging.getLogger(__name__)

CATCHUP_RECORDED = Failpoint("catchup.recorded")


def survey_indexes(table: BaseTable) -> tuple[CatchupSurvey, TableState]:
    """Read merge progress, catch-up and index coverage of one version, from metadata alone."""
    state = table.state()
    details = table.require_mem_wal(state)
    coverage = read_coverage(table, state.version)
    survey = CatchupSurvey(
        table_uri=table.uri,
        version=state.version,
        merged=details.merged_generations,
        recorded=details.index_catchup,
        maintained=details.maintained_indexes,
        fragments=len(coverage.fragments),
        indexes=coverage.indexes,
        outdated=outdated_indexes(table.dataset(state.version), coverage),
    )
    return survey, state


def catch_up(
    context: JobContext,
    sharing: Sharing | None = None,
    *,
    indexes: Collection[str] | None = None,
    merge_segments: bool = False,
    dry_run: bool = False,
) -> CatchupReport:
    """Bring the indexes of the base table up to its merged rows, and record how far they are.

    Each index stands alone: one that fails stays behind, its rows are still served from flushed MemTables, and
    the others go on. Nothing is retrained. A crash leaves an index that covers more than is recorded; the next
    run records it. Recording never moves an entry back, nor past the merge progress of the version that was
    examined. ``sharing`` divides the building of segments between executors; without it, this process extends.
    """
    return _Run(context, sharing, indexes, merge_segments=merge_segments).run(dry_run=dry_run)


def count_catchup(instruments: Instruments, report: CatchupReport) -> None:
    """Count what a catch-up did."""
    for index in report.indexes:
        labels = {TABLE_LABEL: report.table_uri, KIND_LABEL: index.kind}
        instruments.count(CATCHUP_ROWS, index.rows_indexed, labels)
        instruments.count(CATCHUP_INDEXES, 1, {**labels, OUTCOME_LABEL: index.result.value})


class _Run:
    def __init__(
        self, context: JobContext, sharing: Sharing | None, indexes: Collection[str] | None, *, merge_segments: bool
    ) -> None:
        self._context = context
        self._sharing = sharing
        self._settings = context.settings.catchup
        self._indexes = indexes
        self._merge_segments = merge_segments
        self._began = context.clock.monotonic()
        self._reports: dict[str, IndexReport] = {}
        self._tried = 0
        self._seen: tuple[CatchupSurvey, TableState] | None = None

    def run(self, *, dry_run: bool) -> CatchupReport:
        survey, plan = self._look()
        self._reports = {index.name: _untouched(index) for index in plan.indexes}
        self._choose_place(survey, plan)
        if not dry_run and plan.to_extend:
            done = self._extend_together(plan)
            for number, index in enumerate(plan.to_extend, 1):
                if index.name not in done:
                    self._extend(index)
                self._context.progress("indexes", number, len(plan.to_extend))
            self._seen = None
        reason = "" if dry_run else self._record()
        return self._report(plan, survey, reason, dry_run=dry_run)

    def _choose_place(self, survey: CatchupSurvey, plan: CatchupPlan) -> None:
        sharing, extended = self._sharing, {index.name for index in plan.to_extend}
        if sharing is None or not extended:
            return
        unindexed = {each for index in survey.indexes if index.name in extended for each in index.unindexed_fragments}
        fragments = list_fragments(self._context.base, survey.version)
        sharing.choose(
            Work(size_bytes=sum(each.size_bytes or 0 for each in fragments if each.fragment_id in unindexed))
        )

    def _look(self) -> tuple[CatchupSurvey, CatchupPlan]:
        self._seen = survey_indexes(self._context.base)
        return self._seen[0], self._plan(self._seen[0])

    def _last_seen(self) -> tuple[CatchupSurvey, TableState]:
        """Return what was read last, anew if this run has tried to change it since."""
        if self._seen is None:
            self._seen = survey_indexes(self._context.base)
        return self._seen

    def _plan(self, survey: CatchupSurvey) -> CatchupPlan:
        return plan_catchup(survey, self._settings, indexes=self._indexes, merge_segments=self._merge_segments)

    def _extend_together(self, plan: CatchupPlan) -> frozenset[str]:
        """Let executors extend what they can at once; return for which indexes it is settled how that ended.

        If anything fails, each index is tried by itself, so that it stands alone.
        """
        context, table, read = self._context, self._context.base, plan.version
        sharing, indexes = self._sharing, plan.to_extend
        if sharing is None or not sharing.on_executors or len(indexes) < 2:
            return frozenset()
        began = context.clock.monotonic()
        try:
            models = {index.name: model_of(table, read, index) for index in indexes}
            context.failpoints.hit(CATCHUP_SURVEYED)
            context.guard()
            together = extend_on_executors(context, sharing, read, indexes)
        except (FencedError, FrozenError, BareExecutorError):
            raise
        except MemwalError as error:
            _log.info("indexes not extended together, each is tried by itself [error=%s]", error)
            self._tried = int(isinstance(error, ConflictError | CommitUnknownError))
            return frozenset()
        if together is None:
            return frozenset()
        context.failpoints.hit(CATCHUP_EXTENDED)
        for index in together.indexes:
            self._settle(index.name, began, partial(_checked, table, index, models[index.name], read, together.version))
        return frozenset(index.name for index in together.indexes)

    def _extend(self, index: IndexPlan) -> None:
        began = self._context.clock.monotonic()
        self._settle(
            index.name, began, lambda: extend(self._context, self._sharing, index.name, self._look, self._tried)
        )

    def _settle(self, name: str, began: float, work: Callable[[], Extension]) -> None:
        """Do or check the extension of one index, and note how it ended."""
        report = self._reports[name]
        try:
            done = work()
        except (FencedError, FrozenError, BareExecutorError):
            raise
        except MemwalError as error:
            _log.warning("index stays behind, the others go on [index=%s]: %s", name, error)
            result = IndexResult.CONFLICT if isinstance(error, RETRYABLE) else IndexResult.FAILED
            report = replace(report, result=result, reason=str(error))
        else:
            result = IndexResult.EXTENDED if done.attempts else IndexResult.NONE
            report = replace(report, result=result, rows_indexed=done.rows_indexed, attempts=done.attempts)
        self._reports[name] = replace(report, seconds=self._context.clock.monotonic() - began)

    def _record(self) -> str:
        """Record what the indexes cover beyond the record; return why that failed, empty if it did not."""
        context = self._context
        for attempt in range(1, self._settings.max_attempts + 1):
            survey, state = self._last_seen()
            names = [name for name in self._plan(survey).to_record if not self._has_failed(name)]
            if not names:
                return ""
            context.guard()
            self._seen = None
            try:
                record_catchup(context.base, state, dict.fromkeys(names, survey.merged))
            except (ConflictError, CommitUnknownError) as error:
                _log.info("catch-up not recorded, retrying [attempt=%d, error=%s]", attempt, error)
                reason = str(error)
                context.back_off(attempt)
                continue
            context.failpoints.hit(CATCHUP_RECORDED)
            for name in names:
                if self._reports[name].result is IndexResult.NONE:
                    self._reports[name] = replace(self._reports[name], result=IndexResult.RECORDED)
            return ""
        return reason

    def _has_failed(self, name: str) -> bool:
        return name not in self._reports or self._reports[name].result is IndexResult.FAILED

    def _report(self, plan: CatchupPlan, survey: CatchupSurvey, reason: str, *, dry_run: bool) -> CatchupReport:
        after = survey if dry_run else self._last_seen()[0]
        planned = plan_catchup(after, self._settings)
        reports = tuple(
            _finished(report, planned.named(name), after.recorded.get(name, {}))
            for name, report in sorted(self._reports.items())
        )
        return CatchupReport(
            table_uri=plan.table_uri,
            outcome=_planned_outcome(plan) if dry_run else _outcome(reports, reason),
            version_before=plan.version,
            version_after=after.version,
            indexes=reports,
            plan=plan,
            seconds=self._context.clock.monotonic() - self._began,
            reason=reason,
            place=self._sharing.place if self._sharing is not None else None,
        )


def _checked(table: BaseTable, index: IndexPlan, model: str, read: int, version: int) -> Extension:
    require_extended(table, index, model, read, version)
    return Extension(1, index.unindexed_rows)


def _untouched(index: IndexPlan) -> IndexReport:
    return IndexReport(
        name=index.name,
        kind=index.kind,
        verdict=index.verdict,
        result=IndexResult.NONE,
        rows_indexed=0,
        caught_up_through={},
        regions_behind=index.regions_behind,
        segments=index.segments,
        attempts=0,
        seconds=0.0,
    )


def _finished(report: IndexReport, now: IndexPlan | None, recorded: Mapping[RegionId, int]) -> IndexReport:
    return replace(
        report,
        caught_up_through={str(region_id): generation for region_id, generation in sorted(recorded.items())},
        regions_behind=now.regions_behind if now is not None else report.regions_behind,
        segments=now.segments if now is not None else 0,
    )


def _planned_outcome(plan: CatchupPlan) -> JobOutcome:
    if any(index.verdict.needs_human for index in plan.indexes):
        return JobOutcome.BLOCKED
    return JobOutcome.PLANNED if plan.is_due else JobOutcome.NOTHING_TO_DO


def _outcome(reports: Collection[IndexReport], reason: str) -> JobOutcome:
    results = {report.result for report in reports}
    if IndexResult.FAILED in results or any(report.verdict.needs_human for report in reports):
        return JobOutcome.BLOCKED
    if reason or IndexResult.CONFLICT in results:
        return JobOutcome.CONFLICT
    return JobOutcome.DONE if results & {IndexResult.EXTENDED, IndexResult.RECORDED} else JobOutcome.NOTHING_TO_DO
