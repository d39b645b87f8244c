"""One table as background jobs, the command line and plugins see it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

from memwal_core.base_table import BaseTable, Sources
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.maintenance import gc
from memwal_core.maintenance.catchup import CatchupParts, CatchupReport, catch_up
from memwal_core.maintenance.compact import CompactParts, CompactReport, compact
from memwal_core.maintenance.configure import TableConfiguration
from memwal_core.maintenance.cycle import CycleJobs, CycleParts, MaintainReport, MaintainRequest, maintain
from memwal_core.maintenance.insight import TableInsight
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import Lease, LeaseKeeper, LeaseTicket
from memwal_core.maintenance.merge import (
    InProcessReader,
    InProcessWorkers,
    MergeBatch,
    MergeParts,
    MergeProgress,
    MergeProof,
    MergeReport,
    MergeWorkers,
    NativeCommit,
    NearbyParts,
    OpenedGenerations,
    Silent,
    SingleCommit,
    SingleCommitParts,
    Surveyor,
    WinnerReader,
    batch_regions,
    judge_regions,
    merge,
    verify_merge,
)
from memwal_core.maintenance.outcome import CheckLease, JobOutcome, no_lease
from memwal_core.maintenance.snapshot import SnapshotParts, SnapshotReport, build_region_snapshot
from memwal_core.maintenance.status import TableStatus, table_status
from memwal_core.manifest import ManifestStore
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import MergeSettings, Settings


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """How to run a merge.

    Attributes:
        regions: Only these regions; None = all.
        max_bytes: Arrow bytes per commit instead of the configured bound.
        dry_run: Only plan.
        due_only: Only regions of which a trigger fires: generations, bytes or age (``merge_triggers``).
        reader: Who reads the winning rows of native passes; this process by default.
        workers: Who writes winners and finds what they supersede; this process by default, and always for
            passes that are too small for anything else (``merge.executors_min_bytes``).
        progress: Is told how far the merge is.
        holder: Who takes the lease; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
        check_lease: Take no lease, and call this before each commit; it raises if the right to merge is
            gone. ``no_lease`` lets several merge at once, which does no harm and mostly repeats work.
    """

    regions: Collection[RegionId] | None = None
    max_bytes: int | None = None
    dry_run: bool = False
    due_only: bool = False
    reader: WinnerReader | None = None
    workers: MergeWorkers | None = None
    progress: MergeProgress | None = None
    holder: str | None = None
    ticket: LeaseTicket | None = None
    check_lease: CheckLease | None = None


@dataclass(frozen=True, slots=True)
class MergeWork:
    """A planned merge.

    Attributes:
        report: The dry run: every region with its verdict.
        batches: What each job takes on; empty if there is nothing to merge.
    """

    report: MergeReport
    batches: tuple[MergeBatch, ...]


@dataclass(frozen=True, slots=True)
class GcRequest:
    """How to run a garbage collection.

    Attributes:
        regions: Only these regions; None = all.
        dry_run: Only plan. Nothing is deleted unless it is asked for.
        wait: Wait for the grace period of what the run drains, and delete it, too.
        holder: Who takes the lease; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
    """

    regions: Collection[RegionId] | None = None
    dry_run: bool = True
    wait: bool = False
    holder: str | None = None
    ticket: LeaseTicket | None = None


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """How to build a region snapshot.

    Attributes:
        force: Publish even if nothing has changed.
        dry_run: Only plan.
        holder: Who takes the lease; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
    """

    force: bool = False
    dry_run: bool = False
    holder: str | None = None
    ticket: LeaseTicket | None = None


@dataclass(frozen=True, slots=True)
class CatchupRequest:
    """How to bring indexes up to the merged rows.

    Attributes:
        indexes: Only these indexes; None = all.
        merge_segments: Make one segment of each index.
        dry_run: Only plan.
        holder: Who takes the lease; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
    """

    indexes: Collection[str] | None = None
    merge_segments: bool = False
    dry_run: bool = False
    holder: str | None = None
    ticket: LeaseTicket | None = None


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """How to rewrite fragments of the base table.

    Attributes:
        force: Rewrite small neighbours however few they are.
        remove_versions: Then remove old versions, too.
        dry_run: Only plan.
        holder: Who takes the lease; unique per run. One is made up if None.
        ticket: Work under a lease that was taken before, and leave it to whoever took it to give it back.
    """

    force: bool = False
    remove_versions: bool = False
    dry_run: bool = False
    holder: str | None = None
    ticket: LeaseTicket | None = None


class TableAdmin:
    """The jobs of one table, each a method that plans, runs and reports.

    Args:
        table: The base table.
        settings: All settings.
        clock: What measures and waits.
        rng: Jitter and identifiers.
    """

    def __init__(self, table: BaseTable, settings: Settings, clock: Clock, rng: Rng) -> None:
        """Keep the parts; nothing is read."""
        self.table = table
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self.manifests = ManifestStore(table.store, table.ids, settings=settings.storage, clock=clock, rng=rng)
        self.insight = TableInsight(table, self.manifests, settings, clock)
        self.configuration = TableConfiguration(table, self.manifests, settings.storage.concurrency)

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> Self:
        """Open a table that exists.

        Args:
            uri: Its path or address.
            storage_options: Options of the object store under pylance's names.
            settings: All settings; defaults if None.
            clock: The system's if None.
            rng: The system's if None.

        Raises:
            ObjectNotFoundError: There is no table at the address.
            InvalidRequestError: The address or the options cannot be used.
        """
        settings = settings if settings is not None else Settings()
        sources = Sources(clock if clock is not None else SystemClock(), rng if rng is not None else system_rng())
        table = BaseTable.open(uri, storage_options=storage_options, settings=settings, sources=sources)
        return cls(table, settings, sources.clock, sources.rng)

    def status(self) -> TableStatus:
        """Read the state of the table and its regions.

        Raises:
            UnavailableError: Storage failed.
            InvalidRequestError: The table has no MemWAL index.
            CorruptionError: A manifest contradicts itself.
        """
        return table_status(self.table, self.table.store, self.manifests, self._settings.storage.concurrency)

    def plan_merge(self, request: MergeRequest) -> MergeWork:
        """Plan a merge for an orchestrator: what the next pass would do, divided into jobs. Changes nothing.

        Args:
            request: Which regions, and the bytes of a job and of a commit.

        Raises:
            InvalidRequestError: The table cannot be merged into, or a selected region does not exist.
            UnavailableError: Storage failed. Try again.
        """
        report = self.merge(replace(request, dry_run=True))
        return MergeWork(report, batch_regions(report.plan, request.max_bytes or self._settings.merge.max_bytes))

    def verify_merge(self, through: Mapping[RegionId, int]) -> MergeProof:
        """Read the table anew and check that it is merged at least so far, and that keys are unique.

        Args:
            through: Region -> generation, as ``MergeBatch`` names it.

        Raises:
            CorruptionError: It is not so. Merge nothing and delete nothing; follow the runbook.
            UnavailableError: Storage failed. Try again.
        """
        return verify_merge(self.table, through)

    def merge(self, request: MergeRequest | None = None) -> MergeReport:
        """Merge flushed MemTables into the base table until none is left that can be merged.

        One merger works on a table at a time: a merge holds the lease of the job, which is checked
        before every commit. Mergers without it do no harm, but mostly lose commits to each other.

        Args:
            request: How; everything, in this process, if None.

        Raises:
            InvalidRequestError: The table cannot be merged into, or a selected region does not exist.
            LeaseHeldError: Another merge of the table is under way; the facts say whose, and until when
                it holds the lease.
            ConflictError: Others changed the lease each time. Run again.
            UnavailableError: Storage failed. Run again; commits so far stand.
            CorruptionError: A recorded generation contradicts itself.
            FencedError: The lease is lost. Commits so far stand.
        """
        request = request if request is not None else MergeRequest()
        if request.due_only:
            return self._merge_due(request)
        if request.dry_run:
            return self._with_triggers(self._merge(request, no_lease))
        if request.check_lease is not None:
            return self._merge(request, request.check_lease)
        key = request.ticket.key if request.ticket is not None else JobKey("merge")
        with self._lease(key, request.holder, request.ticket) as lease:
            return self._merge(request, lease.check)

    def _merge_due(self, request: MergeRequest) -> MergeReport:
        planned = self.merge(replace(request, due_only=False, dry_run=True))
        due = {region_id for region_id, verdict in planned.triggers.items() if verdict.due}
        if due:
            report = self.merge(replace(request, due_only=False, regions=due))
            return replace(report, triggers=planned.triggers)
        blocked = planned.outcome is JobOutcome.BLOCKED
        outcome = JobOutcome.BLOCKED if blocked else JobOutcome.NOTHING_TO_DO
        return replace(planned, outcome=outcome, reason="no region is due")

    def _with_triggers(self, report: MergeReport) -> MergeReport:
        settings = self._settings
        concurrency = settings.storage.concurrency
        triggers = judge_regions(self.table, self.manifests, report.plan, settings.merge_triggers, concurrency)
        return replace(report, triggers=triggers)

    def _merge(self, request: MergeRequest, check_lease: CheckLease) -> MergeReport:
        bounds = self._settings.merge
        if request.max_bytes is not None:
            _require_positive(request.max_bytes)
            bounds = bounds.model_copy(update={"max_bytes": request.max_bytes})
        store = self.table.store
        concurrency = self._settings.storage.concurrency
        opened = OpenedGenerations(store.storage_options)
        reader = InProcessReader(store.storage_options, concurrency, opened)
        workers = InProcessWorkers(self.table, opened)
        parts = MergeParts(
            table=self.table,
            surveyor=Surveyor(self.table, store, self.manifests, concurrency, opened),
            reader=request.reader if request.reader is not None else reader,
            strategy=NativeCommit(self._clock, self._rng, bounds.max_attempts, guard=check_lease),
            settings=bounds,
            clock=self._clock,
            progress=request.progress if request.progress is not None else Silent(),
            guard=check_lease,
            single_commit=self._single_commit(request.workers or workers, bounds, check_lease),
            nearby=NearbyParts(reader, self._single_commit(workers, bounds, check_lease)),
        )
        return merge(parts, regions=request.regions, dry_run=request.dry_run)

    def _single_commit(self, workers: MergeWorkers, bounds: MergeSettings, check_lease: CheckLease) -> SingleCommit:
        return SingleCommit(
            SingleCommitParts(
                table=self.table,
                workers=workers,
                settings=bounds,
                clock=self._clock,
                rng=self._rng,
                guard=check_lease,
            )
        )

    def build_snapshot(self, request: SnapshotRequest | None = None) -> SnapshotReport:
        """Publish a snapshot of all regions for readers, and raise their WAL hints.

        Args:
            request: How; only if something has changed, if None.

        Raises:
            CorruptionError: A region cannot be read. The present snapshot stays.
            ConflictError: Another build is under way.
            FencedError: The lease was lost on the way; nothing was published.
            CommitUnknownError: Build again.
            UnavailableError: Storage failed. Build again.
            InvalidRequestError: The table has no MemWAL index.
        """
        request = request if request is not None else SnapshotRequest()
        parts = SnapshotParts(self.table, self.manifests, self._settings, self._clock)
        if request.dry_run:
            return build_region_snapshot(parts, force=request.force, dry_run=True)
        with self._lease(JobKey("snapshot"), request.holder, request.ticket) as lease:
            return build_region_snapshot(replace(parts, check_lease=lease.check), force=request.force)

    def catch_up(self, request: CatchupRequest | None = None) -> CatchupReport:
        """Extend base table indexes over merged rows, and record how far they are.

        A run for one index holds that index's lease, so that several may run side by side.

        Args:
            request: How; all indexes if None.

        Raises:
            InvalidRequestError: The table has no MemWAL index, or a selected index does not exist.
            ConflictError: Another run has the lease.
            FencedError: The lease was lost on the way. What was extended so far stands.
            UnavailableError: Storage failed before anything was done. Run again.
        """
        request = request if request is not None else CatchupRequest()
        parts, indexes = self._catchup_parts(no_lease), request.indexes
        if request.dry_run:
            return catch_up(parts, indexes=indexes, merge_segments=request.merge_segments, dry_run=True)
        one = next(iter(indexes)) if indexes is not None and len(indexes) == 1 else None
        key = JobKey("catchup") if one is None else JobKey.of_index("catchup", one)
        with self._lease(key, request.holder, request.ticket) as lease:
            return catch_up(self._catchup_parts(lease.check), indexes=indexes, merge_segments=request.merge_segments)

    def compact(self, request: CompactRequest | None = None) -> CompactReport:
        """Rewrite small and half deleted fragments, with the indexes caught up before and after.

        Args:
            request: How; where the thresholds are reached, if None.

        Raises:
            CorruptionError: A rewrite lost rows or merge progress. Stop all jobs of the table.
            InvalidRequestError: The table has no MemWAL index.
            ConflictError: Another run has the lease.
            FencedError: The lease was lost on the way. What was rewritten so far stands.
            UnavailableError: Storage failed. Run again; what was rewritten stands.
        """
        request = request if request is not None else CompactRequest()
        force, remove = request.force, request.remove_versions
        if request.dry_run:
            return compact(self._compact_parts(no_lease), force=force, dry_run=True, remove_versions=remove)
        with self._lease(JobKey("compact"), request.holder, request.ticket) as lease:
            return compact(self._compact_parts(lease.check), force=force, remove_versions=remove)

    def maintain(self, request: MaintainRequest | None = None) -> MaintainReport:
        """Run all jobs of the table in the right order, each under its lease and recorded in the ledger.

        Args:
            request: How; without deleting anything if None.

        Raises:
            InvalidRequestError: The table has no MemWAL index, or the retention is unsafe.
        """
        request = request if request is not None else MaintainRequest()
        if request.delete:
            gc.check_retention(self._settings.gc)
        holder = request.holder if request.holder is not None else self.table.ids.commit_id().hex()
        jobs = CycleJobs(
            merge=lambda step: self.merge(MergeRequest(dry_run=step.dry_run, holder=holder)),
            catch_up=lambda step: self.catch_up(CatchupRequest(dry_run=step.dry_run, holder=holder)),
            compact=lambda step: self.compact(
                CompactRequest(remove_versions=step.remove_versions, dry_run=step.dry_run, holder=holder)
            ),
            build_snapshot=lambda step: self.build_snapshot(SnapshotRequest(dry_run=step.dry_run, holder=holder)),
            collect_garbage=lambda step: self.collect_garbage(GcRequest(dry_run=step.dry_run, holder=holder)),
        )
        ledger, new_run = self.insight.ledger, self.insight.new_run
        return maintain(
            CycleParts(self.table.uri, jobs, ledger, lambda key: new_run(key, holder), self._clock, request)
        )

    @contextmanager
    def _lease(self, key: JobKey, holder: str | None, ticket: LeaseTicket | None) -> Iterator[Lease]:
        leases = self.insight.leases
        if ticket is None:
            with leases.acquire(key, holder if holder is not None else self.table.ids.commit_id().hex()) as lease:
                yield lease
            return
        lease = leases.resume(ticket)
        # Steps between two checks may take longer than a lease lives.
        with LeaseKeeper(lease, self._settings.lease.renew_after_s / 2):
            yield lease

    def _catchup_parts(self, check_lease: CheckLease) -> CatchupParts:
        return CatchupParts(self.table, self._settings.catchup, self._clock, self._rng, check_lease)

    def _compact_parts(self, check_lease: CheckLease) -> CompactParts:
        surveyor = self._gc_parts(no_lease).surveyor
        return CompactParts(
            self._catchup_parts(check_lease), self._settings.compact, lambda: gc.versions_needed(surveyor)
        )

    def collect_garbage(self, request: GcRequest | None = None) -> gc.GcReport:
        """Delete what nobody needs any more, or show what that would be.

        A run that deletes holds the lease of the job, which is checked before every commit and
        every deletion.

        Args:
            request: How; a dry run if None.

        Raises:
            InvalidRequestError: The retention is unsafe, or a selected region does not exist.
            ConflictError: Another garbage collection of the table is under way.
            FencedError: The lease was lost on the way. What was done so far stands.
            UnavailableError: Storage failed before anything could be planned. Run again.
        """
        request = request if request is not None else GcRequest()
        if request.dry_run:
            return gc.collect_garbage(self._gc_parts(no_lease), regions=request.regions, dry_run=True)
        gc.check_retention(self._settings.gc)
        with self._lease(JobKey("gc"), request.holder, request.ticket) as lease:
            return gc.collect_garbage(self._gc_parts(lease.check), regions=request.regions, wait=request.wait)

    def _gc_parts(self, check_lease: CheckLease) -> gc.GcParts:
        surveyor = gc.Surveyor(
            self.table,
            self.manifests,
            self._settings.storage.concurrency,
            with_references=self._settings.gc.collect_wal,
        )
        return gc.GcParts(surveyor, self._settings, self._clock, check_lease)


def _require_positive(max_bytes: int) -> None:
    if max_bytes < 1:
        raise InvalidRequestError("a merge needs room for rows", remedy="give at least one byte", max_bytes=max_bytes)
