"""Run a compaction: catch up, rewrite fragments, check that nothing was lost, catch up again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from lance.optimize import CompactionTask, RewriteResult

from memwal_core.base_table import (
    CompactionOptions,
    CompactionResult,
    compact_fragments,
    list_fragments,
    rewrite_fragments,
)
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError
from memwal_core.failpoints import Failpoint
from memwal_core.jobs.catchup.report import CatchupReport, IndexResult
from memwal_core.jobs.catchup.run import catch_up, count_catchup
from memwal_core.jobs.compact.cleanup import CleanupReport, clean_up
from memwal_core.jobs.compact.plan import CompactPlan, CompactVerdict, plan_compaction
from memwal_core.jobs.compact.report import CompactReport, RewriteReport
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.needed import versions_needed
from memwal_core.jobs.gc.survey import GcSurveyor
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.metrics import (
    COMPACT_BYTES,
    COMPACT_FRAGMENTS,
    COMPACT_VERSIONS,
    COMPACT_WRITTEN,
    TABLE_LABEL,
    Instruments,
)
from memwal_core.native.casting import has_narrow_dictionary

_log = logging.getLogger(__name__)

COMPACT_OPTIMISED = Failpoint("compact.optimised")
COMPACT_REWRITTEN = Failpoint("compact.rewritten")
COMPACT_CHECKED = Failpoint("compact.checked")

_UNFINISHED = {IndexResult.CONFLICT, IndexResult.FAILED}


def compact(
    context: JobContext,
    sharing: Sharing | None = None,
    ahead: timedelta = timedelta(),
    *,
    force: bool = False,
    dry_run: bool = False,
    remove_versions: bool = False,
) -> CompactReport:
    """Rewrite small and half-deleted fragments, with the indexes caught up before and after.

    Before, because Lance rewrites fragments together only if the same index segments cover them. After, because
    Lance forgets how far an index had caught up when it moves the index to new row addresses; until that is
    recorded again, garbage collection keeps what those indexes might need.

    A ``CorruptionError`` means that a rewrite lost rows or merge progress: stop all jobs of the table. After
    any other error, what was rewritten stands and a later run continues.

    Args:
        context: What to work with.
        sharing: Divides the rewriting between executors; None: this process does it.
        ahead: How far this machine's clock is ahead of the store's, for old versions.
        force: Rewrite also what is not worth it by the settings.
        dry_run: Only plan.
        remove_versions: Remove old versions at the end.
    """
    run = _Run(context, sharing, ahead, force=force)
    if dry_run:
        cleanup = run.clean_up(dry_run=True) if remove_versions else None
        return run.report(run.planned(cleanup), cleanup=cleanup)
    return run.executed(remove_versions=remove_versions)


def count_compaction(instruments: Instruments, report: CompactReport) -> None:
    """Count what a compaction did, its catch-ups included."""
    for catchup in (report.catchup_before, report.catchup_after):
        if catchup is not None:
            count_catchup(instruments, catchup)
    table = {TABLE_LABEL: report.table_uri}
    instruments.count(COMPACT_FRAGMENTS, sum(each.fragments_removed for each in report.rewrites), table)
    instruments.count(COMPACT_WRITTEN, sum(each.fragments_added for each in report.rewrites), table)
    removed = report.cleanup.result if report.cleanup is not None else None
    instruments.count(COMPACT_VERSIONS, removed.versions if removed is not None else 0, table)
    instruments.count(COMPACT_BYTES, removed.size_bytes if removed is not None else 0, table)


class _Run:
    def __init__(self, context: JobContext, sharing: Sharing | None, ahead: timedelta, *, force: bool) -> None:
        self._context = context
        self._sharing = sharing
        self._ahead = ahead
        self._settings = context.settings.compact
        self._force = force
        self._table = context.base
        self._clock = context.clock
        self._began = self._clock.monotonic()
        self._rewrites: list[RewriteReport] = []
        self._before: CatchupReport | None = None
        self._after: CatchupReport | None = None
        self._reason = ""
        self._first = self._plan()
        if self._sharing is not None and self._first.take:
            self._sharing.choose(Work(size_bytes=self._first.size_bytes))
        self._last = self._first

    def planned(self, cleanup: CleanupReport | None) -> JobOutcome:
        removes = cleanup is not None and cleanup.outcome is JobOutcome.PLANNED
        return JobOutcome.PLANNED if self._first.take or removes else JobOutcome.NOTHING_TO_DO

    def executed(self, *, remove_versions: bool) -> CompactReport:
        outcome = self.to_the_end()
        finished = outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
        cleanup = self.clean_up(dry_run=False) if remove_versions and finished else None
        if remove_versions and not finished:
            self._reason = f"{self._reason or self._first.verdict.value}; so old versions were not removed"
        if outcome is JobOutcome.NOTHING_TO_DO and cleanup is not None:
            outcome = cleanup.outcome
        return self.report(outcome, cleanup=cleanup)

    def to_the_end(self) -> JobOutcome:
        if not self._first.take:
            return JobOutcome.NOTHING_TO_DO
        outcome = self._in_order()
        self._last = self._plan()
        return outcome

    def _in_order(self) -> JobOutcome:
        self._before = catch_up(self._context, merge_segments=True)
        self._context.failpoints.hit(COMPACT_OPTIMISED)
        if self._gave_up(self._before):
            return self._before.outcome
        outcome = self._rewrite()
        if self._rewrites:
            self._after = catch_up(self._context)
            if self._gave_up(self._after):
                return self._after.outcome
        return outcome

    def clean_up(self, *, dry_run: bool) -> CleanupReport:
        return clean_up(
            self._table,
            self._settings,
            self._clock.now() - self._ahead,
            needed=versions_needed(GcSurveyor.of(self._context)),
            dry_run=dry_run,
            check_lease=self._context.guard,
        )

    def _gave_up(self, report: CatchupReport) -> bool:
        """Note which indexes stayed behind; a maintained index that is missing does not count."""
        behind = [index for index in report.indexes if index.result in _UNFINISHED]
        if behind or report.reason:
            told = "; ".join(f"{index.name}: {index.reason}" if index.reason else index.name for index in behind)
            self._reason = report.reason or f"indexes stayed behind: {told}"
        return bool(behind or report.reason)

    def _plan(self) -> CompactPlan:
        state = self._table.state()
        self._table.require_mem_wal(state)
        fragments = list_fragments(self._table, state.version)
        plan = plan_compaction(
            self._table.uri,
            state.version,
            fragments,
            self._settings,
            force=self._force,
            divided=self._on_executors,
        )
        if plan.take and any(has_narrow_dictionary(field.type) for field in state.schema):
            return replace(plan, verdict=CompactVerdict.UNREADABLE, take=(), rows=0, size_bytes=0)
        return plan

    @property
    def _on_executors(self) -> bool:
        return self._sharing is not None and self._sharing.on_executors

    def _rewrite(self) -> JobOutcome:
        for _ in range(self._settings.max_passes):
            try:
                progressed = self._pass()
            except (ConflictError, CommitUnknownError) as error:
                self._reason = str(error)
                return JobOutcome.CONFLICT
            if not progressed:
                break
        caught_up = self._before is not None and self._before.outcome is JobOutcome.DONE
        return JobOutcome.DONE if self._rewrites or caught_up else JobOutcome.NOTHING_TO_DO

    def _pass(self) -> bool:
        """Rewrite the fragments of one plan; return whether another pass may find more."""
        began = self._clock.monotonic()
        attempt = 0
        while True:
            plan = self._plan()
            if not plan.take:
                return False
            attempt += 1
            self._context.guard()
            try:
                result = self._compact(plan)
            except (ConflictError, CommitUnknownError) as error:
                _log.info("fragments not rewritten, retrying [table=%s, error=%s]", plan.table_uri, error)
                if attempt >= self._settings.max_attempts:
                    raise
                self._context.back_off(attempt)
                continue
            break
        if not result.fragments_removed:
            return False
        self._context.failpoints.hit(COMPACT_REWRITTEN)
        rows = self._require_nothing_lost(result)
        self._context.failpoints.hit(COMPACT_CHECKED)
        seconds = self._clock.monotonic() - began
        self._rewrites.append(
            RewriteReport(result.version, result.fragments_removed, result.fragments_added, rows, attempt, seconds)
        )
        self._context.progress("fragments rewritten", sum(each.fragments_removed for each in self._rewrites), None)
        return result.fragments_added < result.fragments_removed

    def _compact(self, plan: CompactPlan) -> CompactionResult:
        settings = self._settings
        taken = set(plan.take)
        fragments = list_fragments(self._table, plan.version)
        return compact_fragments(
            self._table,
            read_version=plan.version,
            keep=[each.fragment_id for each in fragments if each.fragment_id not in taken],
            options=CompactionOptions(
                target_rows=settings.target_rows,
                max_file_bytes=settings.max_file_bytes,
                deletion_threshold=settings.deletion_threshold,
                batch_rows=plan.batch_rows,
                threads=settings.threads,
            ),
            rewrite=self._rewrite_elsewhere if self._on_executors else None,
        )

    def _rewrite_elsewhere(self, tasks: Sequence[CompactionTask]) -> list[RewriteResult]:
        assert self._sharing is not None  # noqa: S101 - otherwise this process rewrites
        shares = self._sharing.divide(tasks)
        return [each for done in self._sharing.run("rewrite fragments", rewrite_share, shares) for each in done]

    def _require_nothing_lost(self, result: CompactionResult) -> int:
        """Return the number of live rows, which a rewrite must not change, nor may it change merge progress."""
        before, after = self._table.state(result.version - 1), self._table.state(result.version)
        progress = before.require_details().merged_generations
        if after.num_rows == before.num_rows and after.require_details().merged_generations == progress:
            _log.info("fragments rewritten [table=%s, version=%d]", self._table.uri, result.version)
            return after.num_rows
        raise CorruptionError(
            "rewriting fragments changed the rows or the merge progress of the table",
            remedy="stop all jobs of this table, tag the version before, and follow docs/runbooks/progress-lost.md",
            table=self._table.uri,
            version=result.version,
            rows_before=before.num_rows,
            rows_after=after.num_rows,
            progress_kept=after.require_details().merged_generations == progress,
        )

    def report(self, outcome: JobOutcome, *, cleanup: CleanupReport | None) -> CompactReport:
        return CompactReport(
            table_uri=self._first.table_uri,
            outcome=outcome,
            version_before=self._first.version,
            version_after=self._last.version,
            fragments_before=self._first.fragments,
            fragments_after=self._last.fragments,
            rewrites=tuple(self._rewrites),
            catchup_before=self._before,
            catchup_after=self._after,
            cleanup=cleanup,
            plan=self._first,
            seconds=self._clock.monotonic() - self._began,
            reason=self._reason,
            place=self._sharing.place if self._sharing is not None else None,
        )


def rewrite_share(context: JobContext, tasks: Sequence[CompactionTask]) -> list[RewriteResult]:
    """Rewrite the fragments of some of Lance's tasks."""
    return [rewrite_fragments(context.base, task) for task in tasks]
