"""One table as background jobs, the command line and plugins see it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from memwal_core.base_table import BaseTable, Sources
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.maintenance import gc
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.merge import (
    InProcessReader,
    MergeBatch,
    MergeParts,
    MergeProgress,
    MergeProof,
    MergeReport,
    NativeCommit,
    Silent,
    Surveyor,
    WinnerReader,
    batch_regions,
    merge,
    verify_merge,
)
from memwal_core.maintenance.outcome import CheckLease, no_lease
from memwal_core.maintenance.status import TableStatus, table_status
from memwal_core.manifest import ManifestStore
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import Settings


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """How to run a merge.

    Attributes:
        regions: Only these regions; None = all.
        max_bytes: Arrow bytes per commit instead of the configured bound.
        dry_run: Only plan.
        reader: Who reads the winning rows; this process by default.
        progress: Is told how far the merge is.
    """

    regions: Collection[RegionId] | None = None
    max_bytes: int | None = None
    dry_run: bool = False
    reader: WinnerReader | None = None
    progress: MergeProgress | None = None


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
    """

    regions: Collection[RegionId] | None = None
    dry_run: bool = True
    wait: bool = False
    holder: str | None = None


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

        Args:
            request: How; everything, in this process, if None.

        Raises:
            InvalidRequestError: The table cannot be merged into, or a selected region does not exist.
            UnavailableError: Storage failed. Run again; commits so far stand.
            CorruptionError: A recorded generation contradicts itself.
        """
        request = request if request is not None else MergeRequest()
        bounds = self._settings.merge
        if request.max_bytes is not None:
            _require_positive(request.max_bytes)
            bounds = bounds.model_copy(update={"max_bytes": request.max_bytes})
        store = self.table.store
        parts = MergeParts(
            table=self.table,
            surveyor=Surveyor(self.table, store, self.manifests, self._settings.storage.concurrency),
            reader=request.reader if request.reader is not None else InProcessReader(store.storage_options),
            strategy=NativeCommit(self._clock, self._rng, bounds.max_attempts),
            strategy_reason="default",
            settings=bounds,
            clock=self._clock,
            progress=request.progress if request.progress is not None else Silent(),
        )
        return merge(parts, regions=request.regions, dry_run=request.dry_run)

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
        leases = LeaseStore(
            self.table.store, self.table.ids, settings=self._settings.lease, clock=self._clock, rng=self._rng
        )
        holder = request.holder if request.holder is not None else self.table.ids.commit_id().hex()
        with leases.acquire(JobKey("gc"), holder) as lease:
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
