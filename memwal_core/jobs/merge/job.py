"""The merge as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memwal_core.coordination.ledger import RunOutcome
from memwal_core.errors import MemwalError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.jobs.context import JobContext, Progress
from memwal_core.jobs.job import Division, Job, Piece, Proof, Proving
from memwal_core.jobs.merge.commit.passes import CommitContext
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.decide.batches import MergeBatch, batch_regions
from memwal_core.jobs.merge.decide.due import judge_regions
from memwal_core.jobs.merge.decide.strategy import place_pass
from memwal_core.jobs.merge.decide.stuck import explain_stuck
from memwal_core.jobs.merge.plan import MergePlan
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.read.suspects import find_suspects
from memwal_core.jobs.merge.report import CommitReport, MergeReport
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.run import MergeContext, count_merge, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.merge.verify import Counted, verify_merge
from memwal_core.jobs.merge.work.share import MergeShare
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.jobs.recording import recorded_proof
from memwal_core.jobs.sharing.place import Engine, Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.facts import DUPLICATES_FACT, VERIFY, duplicates_in
from memwal_core.jobs.verify.plan import plan_verification
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.metrics import Instruments
from memwal_core.region.audited import AuditedStore
from memwal_core.text import show_bytes, show_count


class MergeJob(Job[MergeRequest, MergeReport]):
    """Rows and progress in one commit, region after region without holes."""

    def run(self, context: JobContext, request: MergeRequest) -> MergeReport:
        """Merge until nothing that can be merged is left."""
        if request.due_only:
            return self._run_due(context, request)
        report = _merge(context, request)
        if request.leave_held and report.outcome is JobOutcome.BLOCKED and report.plan.holds_only:
            planned = request.dry_run and report.plan.marks
            report = replace(report, outcome=JobOutcome.PLANNED if planned else JobOutcome.PARTIAL)
        return _with_triggers(context, report) if request.dry_run else report

    def _run_due(self, context: JobContext, request: MergeRequest) -> MergeReport:
        everything = request.model_copy(update={"due_only": False})
        planned = self.run(context, everything.planned_only())
        due = tuple(sorted(region_id for region_id, verdict in planned.triggers.items() if verdict.due))
        if due:
            report = self.run(context, everything.model_copy(update={"regions": due}))
            return replace(report, triggers=planned.triggers)
        waits = planned.outcome in {JobOutcome.BLOCKED, JobOutcome.PARTIAL}
        outcome = planned.outcome if waits else JobOutcome.NOTHING_TO_DO
        return replace(planned, outcome=outcome, reason="no region is due")

    def size(self, report: MergeReport) -> Work:
        """Return the regions with generations to merge, and their bytes."""
        return Work(regions=len(report.plan.marks), size_bytes=report.plan.size_bytes, objects=report.plan.generations)

    def count(self, instruments: Instruments, report: MergeReport) -> None:
        """Count what the run did."""
        count_merge(instruments, report)

    def divide(self, context: JobContext, request: MergeRequest) -> Division:
        """Pack regions into Spark jobs; each promises how far its regions will be merged."""
        report = self.run(context, request.planned_only())
        batches = batch_regions(report.plan, request.max_bytes or context.settings.merge.max_bytes)
        pieces = tuple(_piece(number, len(batches), request, batch) for number, batch in enumerate(batches, start=1))
        is_left = request.leave_held and report.plan.holds_only
        stuck = (report.plan.contradicts_itself and not is_left) or report.plan.lost_all
        blocked = explain_stuck(report.table_uri, report.plan) if stuck else None
        return Division(report, pieces, blocked)

    def proving(self, context: JobContext, pieces: Sequence[Piece]) -> Proving | None:  # noqa: ARG002 - all have one
        """Return the count of all keys of the table."""
        plan = plan_verification(context.opened.uri, context.base.state())
        return Proving(VerifyRequest(), plan.work) if plan.schema.names else None

    def verify(
        self,
        context: JobContext,
        pieces: Sequence[Piece],
        results: Sequence[Mapping[str, object]],  # noqa: ARG002 - the table itself says how far it is
    ) -> Proof:
        """Check progress and that keys are unique, and record the proof in the ledger.

        Keys that ``verify`` has counted for the same holder since the merge are not counted again.

        Raises:
            CorruptionError: Progress or keys are wrong; merge nothing and delete nothing.
        """
        through = _promised(pieces)
        sharing = Sharing(context, Engine.AUTO, MergeRequest())

        def prove() -> Proof:
            proof = verify_merge(context.base, through, sharing, _counted(context))
            return Proof(
                f"verified on version {proof.version}: {show_count(len(through), 'region')} merged as planned, "
                f"{show_count(proof.rows, 'row')}, {'every key once' if proof.has_key else 'which have no key'}",
                {
                    "version": proof.version,
                    "rows": proof.rows,
                    "generations": {str(region): generation for region, generation in proof.progress.items()},
                    DUPLICATES_FACT: 0,
                },
            )

        return recorded_proof(context, VERIFY, prove, duplicates_in)

    def knows_the_end(self, report: MergeReport) -> bool:
        """Every commit is followed by another plan, unless the run gave up."""
        return report.outcome is not JobOutcome.CONFLICT

    def failure(self, request: MergeRequest, report: MergeReport) -> MemwalError | None:
        """Name the regions that need a person, and the runbook of the most urgent one."""
        blocked = report.outcome is JobOutcome.BLOCKED
        return explain_stuck(report.table_uri, report.plan) if blocked else super().failure(request, report)


def _merge(context: JobContext, request: MergeRequest) -> MergeReport:
    table, settings = context.base, context.settings
    bounds = settings.merge
    if request.max_bytes is not None:
        bounds = bounds.model_copy(update={"max_bytes": request.max_bytes})
    concurrency = settings.storage.concurrency
    opened = OpenedGenerations(table.storage_options)
    sharing = Sharing(context, request.engine, request)
    # Before the survey reads the quarantine: what failed an audit is held there before the audit is recorded.
    audited = AuditedStore(table.store, digest_of_suites(request.suites)).load() if request.audited_only else None
    commit = CommitContext(table, bounds, context.clock, table.rng, sharing, opened, context.guard)
    parts = MergeContext(
        table=table,
        surveyor=MergeSurveyor(
            table, table.store, context.manifests, concurrency, opened, lambda: find_suspects(context, request.key)
        ),
        commit=SingleCommit(commit),
        settings=bounds,
        clock=context.clock,
        progress=_Watcher(context.progress),
        audited=audited,
        place=lambda size: place_pass(size, sharing, bounds),
    )
    return merge(parts, regions=request.regions or None, dry_run=request.dry_run)


def _with_triggers(context: JobContext, report: MergeReport) -> MergeReport:
    settings = context.settings
    triggers = judge_regions(
        context.base, context.manifests, report.plan, settings.merge_triggers, settings.storage.concurrency
    )
    return replace(report, triggers=triggers)


def _piece(number: int, count: int, request: MergeRequest, batch: MergeBatch) -> Piece:
    label = (
        f"job {number} of {count}: {show_count(len(batch.through), 'region')}, "
        f"{show_count(batch.generations, 'generation')}, {show_bytes(batch.size_bytes)}"
    )
    regions = tuple(sorted(batch.through))
    promise = {"through": {str(region): generation for region, generation in batch.through.items()}}
    return Piece(label, request.model_copy(update={"regions": regions, "due_only": False}), promise)


def _promised(pieces: Sequence[Piece]) -> dict[RegionId, int]:
    through: dict[RegionId, int] = {}
    for piece in pieces:
        promised = piece.promise["through"]
        assert isinstance(promised, Mapping)  # noqa: S101 - made by ``_piece``
        through |= {parse_region_id(region): generation for region, generation in promised.items()}
    return through


def _counted(context: JobContext) -> list[Counted]:
    """Return what runs of this holder found when they counted all keys, newest first."""
    runs = reversed(context.opened.ledger.history(VERIFY).runs)
    facts = [run.facts for run in runs if run.holder == context.holder and run.outcome is RunOutcome.DONE]
    found = [(each.get("version"), each.get("rows")) for each in facts]
    return [Counted(version, rows) for version, rows in found if isinstance(version, int) and isinstance(rows, int)]


class _Watcher:
    """Counts a merge's progress in generations."""

    def __init__(self, progress: Progress) -> None:
        self._tell = progress
        self._merged: dict[RegionId, int] = {}
        self._done = self._read = self._total = 0

    def planned(self, plan: MergePlan) -> None:
        """Take on the plan's generations; what was read for a commit that was overtaken counts no more."""
        mergeable = sum(region.mergeable for region in plan.regions)
        self._merged.update({region.region_id: region.merged for region in plan.regions})
        self._read, self._total = self._done, self._done + mergeable
        self._tell("read", self._read, self._total)
        self._tell("committed", self._done, self._total)

    def read(self, share: MergeShare) -> None:
        """Advance by what was read."""
        self._read += share.through - share.merged
        self._tell("read", self._read, self._total)

    def committed(self, commit: CommitReport) -> None:
        """Advance by what was committed."""
        for region, through in commit.marks.items():
            self._done += through - self._merged[region]
            self._merged[region] = through
        self._tell("committed", self._done, self._total)
