"""Running a merge: plan, read, commit, again until nothing is left.

Nothing is ever deleted here: what is merged becomes garbage, and collecting it is another job.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.maintenance.merge.choice import SINGLE_COMMIT, StrategyChoice
from memwal_core.maintenance.merge.commit import CommitOutcome, CommitStrategy
from memwal_core.maintenance.merge.passes import NativePass, PassCommit, PassStrategy
from memwal_core.maintenance.merge.plan import MergePlan, MergeSurvey, Verdict, plan_merge
from memwal_core.maintenance.merge.report import CommitReport, MergeReport, RegionReport
from memwal_core.maintenance.merge.share import RegionShare
from memwal_core.maintenance.merge.sources import WinnerReader
from memwal_core.maintenance.merge.survey import Surveyor
from memwal_core.maintenance.outcome import CheckLease, JobOutcome, no_lease
from memwal_core.metrics import (
    INSTRUMENTS,
    MERGE_BYTES,
    MERGE_COMMITS,
    MERGE_CONFLICTS,
    MERGE_GENERATIONS,
    MERGE_ROWS,
    TABLE_LABEL,
    Instruments,
)
from memwal_core.settings import MergeSettings

_log = logging.getLogger(__name__)


class MergeProgress(Protocol):
    """Is told how far a merge is; must return quickly."""

    def planned(self, plan: MergePlan) -> None:
        """A pass begins."""
        ...

    def read(self, share: RegionShare) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...

    def committed(self, commit: CommitReport) -> None:
        """A commit landed."""
        ...


class Silent:
    """Progress that nobody watches."""

    def planned(self, plan: MergePlan) -> None:
        """Ignore it."""

    def read(self, share: RegionShare) -> None:
        """Ignore it."""

    def committed(self, commit: CommitReport) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class NearbyParts:
    """What does the work of a pass in this process.

    Attributes:
        reader: Reads the winning rows.
        single_commit: Carries out passes that the plan chooses it for.
    """

    reader: WinnerReader
    single_commit: PassStrategy


@dataclass(frozen=True, slots=True)
class MergeParts:
    """What a merge works with.

    Attributes:
        table: The base table.
        surveyor: Reads the state to plan on.
        reader: Reads the winning rows of passes that ``strategy`` commits, here or on executors.
        strategy: Commits rows that are in memory.
        settings: Bounds of a pass.
        clock: Measures and waits.
        progress: Is told how far the merge is.
        guard: Called before each commit; raises if this merge must not act any more.
        metrics: Counts what was done.
        single_commit: Carries out passes that the plan chooses it for; None leaves all to ``strategy``.
        nearby: Carries out passes that the plan does not give to executors; the parts above if None.
    """

    table: BaseTable
    surveyor: Surveyor
    reader: WinnerReader
    strategy: CommitStrategy
    settings: MergeSettings
    clock: Clock
    progress: MergeProgress
    guard: CheckLease = no_lease
    single_commit: PassStrategy | None = None
    nearby: NearbyParts | None = None
    metrics: Instruments = INSTRUMENTS


def merge(parts: MergeParts, *, regions: Collection[RegionId] | None = None, dry_run: bool = False) -> MergeReport:
    """Merge the flushed MemTables that are there into the base table, as far as they can be merged.

    What is flushed after the run has begun is left to the next run, for a run that goes on as long
    as somebody writes would never end. Repeating it, running it late, or running several at once
    does no harm: progress lives in the base table alone and changes together with the rows.

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
    report = parts.metrics.observe("merge", parts.table.uri, lambda: run.report(run.to_the_end()))
    _record(parts.metrics, report)
    return report


def _record(instruments: Instruments, report: MergeReport) -> None:
    labels = {TABLE_LABEL: report.table_uri}
    instruments.count(MERGE_ROWS, sum(commit.upserts + commit.tombstones for commit in report.commits), labels)
    instruments.count(MERGE_BYTES, report.bytes_planned if report.commits else 0, labels)
    instruments.count(MERGE_GENERATIONS, report.generations, labels)
    instruments.count(MERGE_COMMITS, len(report.commits), labels)
    instruments.count(MERGE_CONFLICTS, report.overtaken + (report.outcome is JobOutcome.CONFLICT), labels)


def _planned_outcome(plan: MergePlan) -> JobOutcome:
    if plan.stuck:
        return JobOutcome.BLOCKED
    return JobOutcome.PLANNED if plan.marks else JobOutcome.NOTHING_TO_DO


class _Run:
    """One run's plans and results."""

    def __init__(self, parts: MergeParts, regions: Collection[RegionId] | None) -> None:
        self._parts = parts
        self._regions = regions
        self._began = parts.clock.monotonic()
        self._confirmed: set[tuple[RegionId, Verdict, str]] = set()
        self._first: dict[RegionId, int] = {}
        self._until: dict[RegionId, int] | None = None
        self._merged_here: dict[RegionId, int] = {}
        self._commits: list[CommitReport] = []
        self._plan: MergePlan | None = None
        self._version_before = self._version_after = 0
        self._passes = self._overtaken = self._bytes_planned = 0
        self._reason = ""
        self._leftovers: list[str] = []
        self._choice: StrategyChoice | None = None

    def plan(self) -> tuple[MergePlan, TableState]:
        """Survey and plan; what looks broken is looked at twice, for it may have moved in between."""
        surveyor = self._parts.surveyor
        survey, state = surveyor.survey(self._regions)
        plan = self._planned(survey)
        if any((stuck.region_id, stuck.verdict, stuck.evidence) not in self._confirmed for stuck in plan.stuck):
            surveyor.forget()
            survey, state = surveyor.survey(self._regions)
            plan = self._planned(survey)
            self._confirmed |= {(stuck.region_id, stuck.verdict, stuck.evidence) for stuck in plan.stuck}
        for region in plan.regions:
            self._first.setdefault(region.region_id, region.merged)
        if self._plan is None:
            self._version_before = plan.version
        self._plan, self._version_after = plan, max(plan.version, self._version_after)
        return plan, state

    def _planned(self, survey: MergeSurvey) -> MergePlan:
        parts = self._parts
        if self._until is None:
            self._until = {region.region_id: region.current_generation - 1 for region in survey.regions}
        single_commit = parts.single_commit
        executors = None if single_commit is None else lambda: single_commit.executors
        return plan_merge(survey, parts.settings, regions=self._regions, until=self._until, executors=executors)

    def to_the_end(self) -> JobOutcome:
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
            except (ConflictError, CommitUnknownError) as error:
                self._reason = str(error)
                leftovers = error.facts.get("leftovers", ())
                self._leftovers.extend(leftovers if isinstance(leftovers, tuple) else ())
                return JobOutcome.CONFLICT
            except ObjectNotFoundError as error:
                # Either another merger and the garbage collector moved on, or an object is lost.
                vanished += 1
                self._parts.surveyor.forget()
                if vanished >= self._parts.settings.max_attempts:
                    raise _lost(error) from error

    def _ended(self, plan: MergePlan) -> JobOutcome:
        if plan.stuck:
            return JobOutcome.BLOCKED
        return JobOutcome.DONE if self._commits else JobOutcome.NOTHING_TO_DO

    def _carry_out(self, plan: MergePlan, state: TableState) -> None:
        parts = self._parts
        strategy = self._strategy(plan)
        self._choice = plan.strategy
        began = parts.clock.monotonic()
        for commit in strategy.carry_out(plan, state, parts.progress):
            self._leftovers.extend(commit.leftovers)
            self._version_after = max(self._version_after, commit.done.version)
            if commit.done.outcome is CommitOutcome.OVERTAKEN:
                self._overtaken += 1
                _log.info(
                    "another merger was first, planning anew [table=%s, version=%d]",
                    plan.table_uri,
                    commit.done.version,
                )
                return
            self._record(commit, strategy.name, parts.clock.monotonic() - began)
            began = parts.clock.monotonic()

    def _strategy(self, plan: MergePlan) -> PassStrategy:
        parts = self._parts
        reader, single_commit = parts.reader, parts.single_commit
        if parts.nearby is not None and not plan.strategy.on_executors:
            reader, single_commit = parts.nearby.reader, parts.nearby.single_commit
        if single_commit is not None and plan.strategy.name == SINGLE_COMMIT:
            return single_commit
        return NativePass(parts.table, reader, parts.strategy, parts.guard)

    def _record(self, pass_commit: PassCommit, strategy: str, seconds: float) -> None:
        shares, done = pass_commit.shares, pass_commit.done
        for each in shares:
            gained = each.through - each.merged
            self._merged_here[each.region_id] = self._merged_here.get(each.region_id, 0) + gained
        commit = CommitReport(
            version=done.version,
            strategy=strategy,
            marks={each.region_id: each.through for each in shares},
            rows_read=sum(each.rows_read for each in shares),
            upserts=sum(each.upserts for each in shares),
            tombstones=sum(each.tombstones for each in shares),
            attempts=done.attempts,
            settled=done.settled,
            seconds=seconds,
        )
        self._commits.append(commit)
        _log.info("merged [version=%d, regions=%d, upserts=%d]", commit.version, len(commit.marks), commit.upserts)
        self._parts.progress.committed(commit)

    def report(self, outcome: JobOutcome) -> MergeReport:
        plan = self._plan
        assert plan is not None  # noqa: S101 - every path to a report plans first
        choice = self._choice if self._choice is not None else plan.strategy
        return MergeReport(
            table_uri=plan.table_uri,
            outcome=outcome,
            strategy=choice.name,
            strategy_reason=choice.reason,
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
            leftovers=tuple(self._leftovers),
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


def _lost(error: ObjectNotFoundError) -> CorruptionError:
    return CorruptionError(
        "a recorded flushed MemTable lacks an object", remedy="run `memwal doctor`; do not merge past it", **error.facts
    )
