"""Running a merge: plan, read, commit, again until nothing is left.

Nothing is ever deleted here: what is merged becomes garbage, and collecting it is another job.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.clock import Clock
from memwal_core.errors import ConflictError, CorruptionError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance.lease.held import Guard, unguarded
from memwal_core.maintenance.merge.commit import CommitOutcome, CommitStrategy, MergeCommit
from memwal_core.maintenance.merge.plan import MergePlan, Verdict, plan_merge
from memwal_core.maintenance.merge.report import CommitReport, MergeOutcome, MergeReport, RegionReport
from memwal_core.maintenance.merge.sources import RegionWinners, WinnerReader, region_tasks
from memwal_core.maintenance.merge.survey import Surveyor, merge_target
from memwal_core.settings import MergeSettings

_log = logging.getLogger(__name__)


class MergeProgress(Protocol):
    """Is told how far a merge is; must return quickly."""

    def planned(self, plan: MergePlan) -> None:
        """A pass begins."""
        ...

    def read(self, winners: RegionWinners) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...

    def committed(self, commit: CommitReport) -> None:
        """A commit landed."""
        ...


class Silent:
    """Progress that nobody watches."""

    def planned(self, plan: MergePlan) -> None:
        """Ignore it."""

    def read(self, winners: RegionWinners) -> None:
        """Ignore it."""

    def committed(self, commit: CommitReport) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class MergeParts:
    """What a merge works with.

    Attributes:
        table: The base table.
        surveyor: Reads the state to plan on.
        reader: Reads the winning rows, here or on executors.
        strategy: Commits them.
        strategy_reason: Why this strategy, for the report.
        settings: Bounds of a pass.
        clock: Measures and waits.
        progress: Is told how far the merge is.
        guard: Called before each commit; raises if this merge must not act any more.
    """

    table: BaseTable
    surveyor: Surveyor
    reader: WinnerReader
    strategy: CommitStrategy
    strategy_reason: str
    settings: MergeSettings
    clock: Clock
    progress: MergeProgress
    guard: Guard = unguarded


def merge(parts: MergeParts, *, regions: Collection[RegionId] | None = None, dry_run: bool = False) -> MergeReport:
    """Merge flushed MemTables into the base table until none is left that can be merged.

    Repeating it, running it late, or running several at once does no harm: progress lives in the
    base table alone and changes together with the rows.

    Args:
        parts: What to work with.
        regions: Only these regions; all by default.
        dry_run: Only plan; the report then has outcome ``planned`` (or ``nothing_to_do``,
            ``blocked``) and no commits.

    Returns:
        What was done, and for every region why it ends where it ends.

    Raises:
        InvalidRequestError: The table cannot be merged into, or a selected region does not exist.
        UnavailableError: Storage failed. Run again; commits so far stand.
        CorruptionError: A recorded generation contradicts itself. See the runbook.
        FencedError: The guard found the lease lost. Stop; commits so far stand.
    """
    run = _Run(parts, regions)
    if dry_run:
        plan, _ = run.plan()
        return run.report(_planned_outcome(plan))
    return run.report(run.to_the_end())


def _planned_outcome(plan: MergePlan) -> MergeOutcome:
    if plan.stuck:
        return MergeOutcome.BLOCKED
    return MergeOutcome.PLANNED if plan.marks else MergeOutcome.NOTHING_TO_DO


class _Run:
    """One run's plans and results."""

    def __init__(self, parts: MergeParts, regions: Collection[RegionId] | None) -> None:
        self._parts = parts
        self._regions = regions
        self._began = parts.clock.monotonic()
        self._confirmed: set[tuple[RegionId, Verdict, str]] = set()
        self._first: dict[RegionId, int] = {}
        self._merged_here: dict[RegionId, int] = {}
        self._commits: list[CommitReport] = []
        self._plan: MergePlan | None = None
        self._version_before = self._version_after = 0
        self._passes = self._overtaken = self._bytes_planned = 0
        self._reason = ""

    def plan(self) -> tuple[MergePlan, TableState]:
        """Survey and plan; what looks broken is looked at twice, for it may have moved in between."""
        surveyor, settings = self._parts.surveyor, self._parts.settings
        survey, state = surveyor.survey(self._regions)
        plan = plan_merge(survey, settings, regions=self._regions)
        if any((stuck.region_id, stuck.verdict, stuck.evidence) not in self._confirmed for stuck in plan.stuck):
            surveyor.forget()
            survey, state = surveyor.survey(self._regions)
            plan = plan_merge(survey, settings, regions=self._regions)
            self._confirmed |= {(stuck.region_id, stuck.verdict, stuck.evidence) for stuck in plan.stuck}
        for region in plan.regions:
            self._first.setdefault(region.region_id, region.merged)
        if self._plan is None:
            self._version_before = plan.version
        self._plan, self._version_after = plan, max(plan.version, self._version_after)
        return plan, state

    def to_the_end(self) -> MergeOutcome:
        vanished = 0
        while True:
            plan, state = self.plan()
            if not plan.marks:
                return self._ended(plan)
            self._parts.progress.planned(plan)
            self._passes += 1
            self._bytes_planned += plan.size_bytes
            try:
                self._carry_out(plan, state)
            except ConflictError as error:
                self._reason = str(error)
                return MergeOutcome.CONFLICT
            except ObjectNotFoundError as error:
                # Either another merger and the garbage collector moved on, or an object is lost.
                vanished += 1
                self._parts.surveyor.forget()
                if vanished >= self._parts.settings.max_attempts:
                    raise _lost(error) from error

    def _ended(self, plan: MergePlan) -> MergeOutcome:
        if plan.stuck:
            return MergeOutcome.BLOCKED
        return MergeOutcome.DONE if self._commits else MergeOutcome.NOTHING_TO_DO

    def _carry_out(self, plan: MergePlan, state: TableState) -> None:
        parts = self._parts
        tasks = region_tasks(plan, merge_target(state), split_deletes=parts.strategy.split_deletes)
        began = parts.clock.monotonic()
        for winners in _rounds(self._watched(parts.reader(tasks))):
            parts.guard()
            done = parts.strategy.commit(parts.table, state, winners)
            self._version_after = max(self._version_after, done.version)
            if done.outcome is CommitOutcome.OVERTAKEN:
                self._overtaken += 1
                _log.info(
                    "another merger was first, planning anew [table=%s, version=%d]", plan.table_uri, done.version
                )
                return
            self._record(winners, done, parts.clock.monotonic() - began)
            state, began = parts.table.state(), parts.clock.monotonic()

    def _watched(self, winners: Iterable[RegionWinners]) -> Iterator[RegionWinners]:
        for each in winners:
            self._parts.progress.read(each)
            yield each

    def _record(self, winners: Sequence[RegionWinners], done: MergeCommit, seconds: float) -> None:
        for each in winners:
            gained = each.through - each.merged
            self._merged_here[each.region_id] = self._merged_here.get(each.region_id, 0) + gained
        commit = CommitReport(
            version=done.version,
            marks={each.region_id: each.through for each in winners},
            rows_read=sum(each.rows_read for each in winners),
            upserts=sum(each.upserts.num_rows for each in winners),
            tombstones=sum(each.tombstones.num_rows for each in winners),
            attempts=done.attempts,
            settled=done.settled,
            seconds=seconds,
        )
        self._commits.append(commit)
        _log.info("merged [version=%d, regions=%d, upserts=%d]", commit.version, len(commit.marks), commit.upserts)
        self._parts.progress.committed(commit)

    def report(self, outcome: MergeOutcome) -> MergeReport:
        plan = self._plan
        assert plan is not None  # noqa: S101 - every path to a report plans first
        return MergeReport(
            table_uri=plan.table_uri,
            outcome=outcome,
            strategy=self._parts.strategy.name,
            strategy_reason=self._parts.strategy_reason,
            version_before=self._version_before,
            version_after=self._version_after,
            passes=self._passes,
            bytes_planned=self._bytes_planned,
            overtaken=self._overtaken,
            commits=tuple(self._commits),
            regions=tuple(self._region_reports(plan)),
            plan=plan,
            seconds=self._parts.clock.monotonic() - self._began,
            reason=self._reason,
        )

    def _region_reports(self, plan: MergePlan) -> Iterator[RegionReport]:
        for region in plan.regions:
            here = self._merged_here.get(region.region_id, 0)
            finished = here and region.verdict is Verdict.NOTHING_TO_MERGE
            yield RegionReport(
                region_id=region.region_id,
                merged_before=self._first[region.region_id],
                merged_after=region.merged,
                merged_here=here,
                waiting=region.waiting + len(region.take),
                verdict=Verdict.COMPLETE if finished else region.verdict,
                evidence=region.evidence,
            )


def _rounds(winners: Iterable[RegionWinners]) -> Iterator[list[RegionWinners]]:
    """Group segments into commits: the first of every region, then the second, and so on."""
    by_region: dict[RegionId, list[RegionWinners]] = {}
    for each in winners:
        by_region.setdefault(each.region_id, []).append(each)
    for column in zip_longest(*by_region.values()):
        yield [each for each in column if each is not None]


def _lost(error: ObjectNotFoundError) -> CorruptionError:
    return CorruptionError(
        "a recorded flushed MemTable lacks an object", remedy="run `memwal doctor`; do not merge past it", **error.facts
    )
