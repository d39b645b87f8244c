"""Run a merge: plan, read, commit, again until nothing is left.

A merge deletes nothing: what is merged becomes garbage, and collecting it is another job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from memwal_core.base_table import BaseTable, TableState
from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    DamagedError,
    FencedError,
    MemwalError,
    ObjectNotFoundError,
)
from memwal_core.flushed.read.diagnosis import Damage, FileKind, diagnose_generation
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.commit.passes import CommitOutcome, PassCommit
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.decide.strategy import PassSize, place_here
from memwal_core.jobs.merge.plan import MergePlan, MergeSurvey, SurveyedGeneration, Verdict, plan_merge
from memwal_core.jobs.merge.report import CommitReport, MergeReport, RegionReport
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace
from memwal_core.metrics import (
    MERGE_BYTES,
    MERGE_COMMITS,
    MERGE_CONFLICTS,
    MERGE_GENERATIONS,
    MERGE_ROWS,
    TABLE_LABEL,
    Instruments,
)
from memwal_core.region.audited import Audited
from memwal_core.settings import MergeSettings
from memwal_core.storage.concurrent import map_concurrently

_log = logging.getLogger(__name__)


class MergeProgress(Protocol):
    """Receives how far a merge is; must return quickly."""

    def planned(self, plan: MergePlan) -> None:
        """A pass begins."""
        ...

    def read(self, share: MergeShare) -> None:
        """Consecutive generations of a region were read and de-duplicated."""
        ...

    def committed(self, commit: CommitReport) -> None:
        """A commit landed."""
        ...


@dataclass(frozen=True, slots=True)
class MergeContext:
    """What a merge works with.

    Attributes:
        audited: What an audit saw, if only that may be merged; loaded before anything is surveyed.
        place: Chooses where a pass is prepared.
    """

    table: BaseTable
    surveyor: MergeSurveyor
    commit: SingleCommit
    settings: MergeSettings
    clock: Clock
    progress: MergeProgress
    audited: Audited | None = None
    place: Callable[[PassSize], Workplace] = place_here


def merge(context: MergeContext, *, regions: Collection[RegionId] | None = None, dry_run: bool = False) -> MergeReport:
    """Merge the flushed MemTables that exist now into the base table, as far as they can be merged.

    What is flushed after the run began is left to the next run; otherwise a run beside a busy writer would
    never end. Repeating it, running it late, or running several at once does no harm: progress lives in the
    base table alone and changes together with the rows.

    Args:
        context: What to work with.
        regions: Only these regions; all by default.
        dry_run: Only plan; the report then has outcome ``planned`` (or ``nothing_to_do``, ``blocked``) and no commits.

    Returns:
        What was done, and for every region why it ends where it ends.

    Raises:
        InvalidRequestError: The table cannot be merged into, or a selected region does not exist.
        UnavailableError: Storage failed. Run again; commits so far stand.
        CorruptionError: A recorded generation contradicts itself. See the runbook.
        FencedError: The guard found the lease lost. Stop; commits so far stand.
    """
    run = _Run(context, regions)
    if dry_run:
        plan, _ = run.plan()
        return run.report(_planned_outcome(plan))
    return run.report(run.to_the_end())


def count_merge(instruments: Instruments, report: MergeReport) -> None:
    """Count what a merge did."""
    labels = {TABLE_LABEL: report.table_uri}
    instruments.count(MERGE_ROWS, sum(commit.upserts + commit.tombstones for commit in report.commits), labels)
    instruments.count(MERGE_BYTES, report.bytes_planned if report.commits else 0, labels)
    instruments.count(MERGE_GENERATIONS, report.generations, labels)
    instruments.count(MERGE_COMMITS, len(report.commits), labels)
    instruments.count(MERGE_CONFLICTS, report.overtaken + (report.outcome is JobOutcome.CONFLICT), labels)


def _planned_outcome(plan: MergePlan) -> JobOutcome:
    if plan.contradicts_itself:
        return JobOutcome.BLOCKED
    if plan.marks:
        return JobOutcome.PLANNED
    return JobOutcome.PARTIAL if plan.parked else JobOutcome.NOTHING_TO_DO


class _Run:
    def __init__(self, context: MergeContext, regions: Collection[RegionId] | None) -> None:
        self._context = context
        self._regions = regions
        self._began = context.clock.monotonic()
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
        self._carried_out: MergePlan | None = None
        self._made: TableState | None = None

    def plan(self) -> tuple[MergePlan, TableState]:
        """Survey and plan; a region that looks broken is surveyed twice, because it may have changed between reads."""
        surveyor = self._context.surveyor
        survey, state = surveyor.survey(self._regions, self._made)
        self._made = None
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
        context = self._context
        if self._until is None:
            self._until = {region.region_id: region.current_generation - 1 for region in survey.regions}
        return plan_merge(
            survey,
            context.settings,
            regions=self._regions,
            until=self._until,
            audited=context.audited,
            place=context.place,
        )

    def to_the_end(self) -> JobOutcome:
        vanished = 0
        while True:
            plan, state = self.plan()
            if not plan.marks:
                return self._ended(plan)
            self._context.progress.planned(plan)
            self._passes += 1
            self._bytes_planned += plan.size_bytes
            try:
                self._carry_out(plan, state)
            except (ConflictError, CommitUnknownError) as error:
                self._reason = str(error)
                leftovers = error.facts.get("leftovers", ())
                self._leftovers.extend(leftovers if isinstance(leftovers, tuple) else ())
                return JobOutcome.CONFLICT
            except FencedError:
                raise
            except MemwalError as error:
                vanished += self._after_failure(plan, error, vanished)

    def _after_failure(self, plan: MergePlan, error: MemwalError, vanished: int) -> int:
        """Prepare the next plan after a failed pass: 1 if something vanished, 0 if damage was found and is left out.

        An object vanishes when another merge and a garbage collection came first, or when it is lost.
        """
        self._context.surveyor.forget()
        if self._condemn(plan, error):
            return 0
        if not isinstance(error, ObjectNotFoundError):
            raise error
        if vanished + 1 >= self._context.settings.max_attempts:
            raise _lost(error) from error
        return 1

    def _condemn(self, plan: MergePlan, error: MemwalError) -> bool:
        """Find the generations of a failed pass whose files are damaged; later plans of this run leave them out."""
        context = self._context
        taken = [(region.region_id, each) for region in plan.regions for each in region.take]

        def diagnose(each: tuple[RegionId, SurveyedGeneration]) -> tuple[Damage, ...]:
            region_id, generation = each
            return diagnose_generation(context.table.store, region_id, generation.uri.rpartition("/")[2])

        found = map_concurrently(diagnose, taken, context.table.settings.storage.concurrency)
        if isinstance(error, DamagedError) and not any(found):
            found = [_named_by(error, generation) for _, generation in taken]
        for (region_id, generation), damage in zip(taken, found, strict=True):
            if damage:
                evidence = "; ".join(map(str, damage))
                _log.warning(
                    "flushed MemTable is damaged and left out [region_id=%s, generation=%d] %s",
                    region_id,
                    generation.generation,
                    evidence,
                )
                context.surveyor.condemn(region_id, generation.generation, evidence)
        return any(found)

    def _ended(self, plan: MergePlan) -> JobOutcome:
        if plan.contradicts_itself:
            return JobOutcome.BLOCKED
        if plan.parked:
            return JobOutcome.PARTIAL
        return JobOutcome.DONE if self._commits else JobOutcome.NOTHING_TO_DO

    def _carry_out(self, plan: MergePlan, state: TableState) -> None:
        context = self._context
        self._carried_out = plan
        began = context.clock.monotonic()
        for commit in context.commit.carry_out(plan, state, context.progress):
            self._leftovers.extend(commit.leftovers)
            self._made = commit.made
            self._version_after = max(self._version_after, commit.done.version)
            if commit.done.outcome is CommitOutcome.OVERTAKEN:
                self._overtaken += 1
                _log.info(
                    "another merge was first, planning again [table=%s, version=%d]",
                    plan.table_uri,
                    commit.done.version,
                )
                return
            self._record(commit, plan, context.clock.monotonic() - began)
            began = context.clock.monotonic()

    def _record(self, pass_commit: PassCommit, plan: MergePlan, seconds: float) -> None:
        shares, done = pass_commit.shares, pass_commit.done
        for each in shares:
            gained = each.through - each.merged
            self._merged_here[each.region_id] = self._merged_here.get(each.region_id, 0) + gained
        commit = CommitReport(
            version=done.version,
            place=plan.place,
            strategy=plan.strategy,
            marks={each.region_id: each.through for each in shares},
            rows_read=sum(each.rows_read for each in shares),
            upserts=sum(each.upserts for each in shares),
            tombstones=sum(each.tombstones for each in shares),
            attempts=done.attempts,
            settled=done.settled,
            seconds=seconds,
            search=done.search,
        )
        self._commits.append(commit)
        _log.info("merged [version=%d, regions=%d, upserts=%d]", commit.version, len(commit.marks), commit.upserts)
        self._context.progress.committed(commit)

    def report(self, outcome: JobOutcome) -> MergeReport:
        plan = self._plan
        assert plan is not None  # noqa: S101 - every path to a report plans first
        prepared = self._carried_out if self._carried_out is not None else plan
        return MergeReport(
            table_uri=plan.table_uri,
            outcome=outcome,
            place=prepared.place,
            strategy=prepared.strategy,
            version_before=self._version_before,
            version_after=self._version_after,
            passes=self._passes,
            bytes_planned=self._bytes_planned,
            overtaken=self._overtaken,
            commits=tuple(self._commits),
            regions=tuple(self._region_reports(plan)),
            plan=plan,
            seconds=self._context.clock.monotonic() - self._began,
            reason=self._reason,
            leftovers=tuple(self._leftovers),
            suspects=self._context.surveyor.suspects,
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


def _named_by(error: DamagedError, generation: SurveyedGeneration) -> tuple[Damage, ...]:
    """Return the damage that an error names, if it is this generation's; its files look right one by one."""
    path, cause = str(error.facts["path"]), str(error.facts["cause"])
    return (Damage(FileKind.DATA, path, cause),) if f"/{generation.uri.rpartition('/')[2]}/" in f"/{path}/" else ()


def _lost(error: ObjectNotFoundError) -> CorruptionError:
    return CorruptionError(
        "a file that the merge needs is missing",
        remedy="run `memwal doctor`, which names what is damaged, and do not merge past it",
        **error.facts,
    )
