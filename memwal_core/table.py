"""The front door: one table to write, read, maintain and examine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState
from memwal_core.base_table.commit.create import require_not_enabled
from memwal_core.base_table.commit.key import check_key, define_key
from memwal_core.base_table.new import new_spec, write_empty_table
from memwal_core.clock import Clock
from memwal_core.coordination.freeze import Freeze
from memwal_core.coordination.freeze.reading import RememberedHistory
from memwal_core.coordination.lease import LeaseTicket
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.jobs.configure.run import TableConfiguration
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.outcome import CheckLease
from memwal_core.jobs.request import AskedOf, JobRequest
from memwal_core.jobs.runner import execute
from memwal_core.jobs.sharing.executors import Executors
from memwal_core.native.lance_version import require_proven_lance
from memwal_core.observe.status import TableStatus, table_status
from memwal_core.reader import Consistency
from memwal_core.reader.analysis.analyze import Analysis, Query, analyze
from memwal_core.reader.arguments import as_names, require_count, require_kind
from memwal_core.reader.merged import MergedReader
from memwal_core.region.spec import RegionSpec, RegionValue
from memwal_core.rng import Rng
from memwal_core.settings import Settings, load_settings
from memwal_core.settings.writer import Takeover
from memwal_core.storage import open_store
from memwal_core.storage.address import as_uri
from memwal_core.writer import RegionWriter, TableWriter

if TYPE_CHECKING:
    from memwal_core.jobs.checkpoint.report import CheckpointReport
    from memwal_core.jobs.gc.plan import GcPlan
    from memwal_core.jobs.thaw.report import ThawReport
    from memwal_core.jobs.thaw.run import Decision
    from memwal_core.observe.health import Health
    from memwal_core.observe.why.answers import RegionAnswer

ReportT = TypeVar("ReportT")


class Table(MergedReader):
    """One MemWAL table. Reads (``scan``, ``to_arrow``, ``count``, ``lookup``, ``vector_search``,
    ``full_text_search``) return the newest version of every row, the unflushed rows of its own writers included.

    Args:
        opened: The table; ``memwal_core.open`` and ``memwal_core.create`` make it.
        consistency: What reads see where a call does not say; if None, ``in_process`` once this object has opened
            a writer, so that it reads its own writes, else ``latest``.

    Attributes:
        opened: The parts below the front door: base table, region manifests, ledger, leases.
    """  # noqa: D205 - the list of reads is part of the one line

    def __init__(self, opened: OpenTable, *, consistency: Consistency | str | None = None) -> None:
        """Keep the parts; nothing is read."""
        super().__init__(
            opened.base,
            writers=self._region_writers,
            consistency=consistency,
            history=RememberedHistory(opened.base, opened.freezes),
        )
        self.opened = opened
        self._open_writers: list[TableWriter] = []
        self._has_written = False

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        consistency: Consistency | str | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> Self:
        """Open a table that exists.

        Args:
            uri: Its path or address.
            storage_options: Options of the object store under pylance's names.
            settings: All settings; defaults if None.
            consistency: What reads see where a call does not say.
            clock: The system's if None.
            rng: The system's if None.

        Raises:
            ObjectNotFoundError: There is no table at the address.
            InvalidRequestError: The address or the options cannot be used.
        """
        uri, settings = as_uri(uri), load_settings() if settings is None else settings
        require_kind("settings", settings, Settings)
        opened = OpenTable.at(uri, storage_options=storage_options, settings=settings, clock=clock, rng=rng)
        return cls(opened, consistency=consistency)

    @classmethod
    def create(  # noqa: PLR0913 - what a table is made of
        cls,
        uri: str | os.PathLike[str],
        schema: pa.Schema,
        *,
        key: str | Sequence[str],
        buckets: int | None = None,
        regions: str | Sequence[str] = (),
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
    ) -> Self:
        """Create an empty table that takes streaming upserts. Repeated, it finishes a call that was interrupted.

        Args:
            uri: Path or address where nothing is yet.
            schema: Its columns; those of the key become non-nullable.
            key: Column or columns of the primary key.
            buckets: Regions by hash of the first key column: as many writers can write at once. One if None.
            regions: How rows map to regions instead of buckets, for example ``"tenant"`` or ``"bucket(id, 8)"``;
                several components together identify a region, and each takes columns of the key only.
            storage_options: Options of the object store under pylance's names.
            settings: All settings; defaults if None.

        Raises:
            InvalidRequestError: There is a table already, or schema, key and buckets do not fit each other; nothing
                was written. Or the store has no conditional writes; then an empty table is left.
            UnavailableError: Storage failed.
        """
        uri, settings = as_uri(uri), load_settings() if settings is None else settings
        require_kind("schema", schema, pa.Schema)
        require_kind("settings", settings, Settings)
        names, components = as_names(key), as_names(regions)
        if buckets is not None and components:
            raise InvalidRequestError(
                "a table is divided into buckets or by components, not both",
                remedy='leave `buckets` out, or write regions=["bucket(COLUMN, N)", ...]',
                regions=components,
            )
        division = components or (1 if buckets is None else buckets)
        if not components:
            require_count("buckets", division, 1)
        require_proven_lance(settings.storage)
        store = open_store(uri, storage_options=storage_options, settings=settings.storage)
        made = write_empty_table(store, schema, names, division)
        table = cls.open(uri, storage_options=storage_options, settings=settings)
        table.enable([made.spec])
        return table

    def analyze(
        self, query: Query, *, consistency: Consistency | str | None = None, version: int | None = None
    ) -> Analysis:
        """Run a query and tell what it did: nodes, sources, filters, masked rows, requests, bytes and time.

        Args:
            query: Reads from the view it is given, for example ``lambda view: view.scan().to_arrow()``.
            consistency: As for ``view``.
            version: As for ``view``.

        Raises:
            MemwalError: As for ``read``.
        """
        chosen = self._default_consistency(version) if consistency is None else consistency
        return analyze(
            self.opened.base,
            query,
            consistency=chosen,
            version=version,
            writers=self._region_writers,
            history=lambda table: RememberedHistory(table, self.opened.freezes.over(table.store)),
        )

    @property
    def base(self) -> BaseTable:
        """The base table."""
        return self.opened.base

    @property
    def uri(self) -> str:
        """Path or address of the table."""
        return self.opened.uri

    def enable(
        self,
        specs: Sequence[RegionSpec] = (),
        maintained_indexes: Sequence[str] = (),
        *,
        key: str | Sequence[str] = (),
        regions: str | Sequence[str] | int = (),
        dry_run: bool = False,
    ) -> TableState:
        """Enable MemWAL on a table that exists.

        If the table has lost its index beside its regions, because it was overwritten, it is frozen first, and divided
        as before; ``thaw`` then decides what becomes of the regions' rows.

        Args:
            specs: How rows map to regions; none and no ``regions`` means that regions are made by hand.
            maintained_indexes: Base table indexes that MemTables maintain, without the primary
                key's own.
            key: Columns that become the primary key of a table that has none; all rows are read, because no two may
                have the same. May be omitted if there is one.
            regions: Instead of specs: components of one, as for ``create``, or how many buckets of the first key
                column.
            dry_run: Only check, without a probe of the store's conditional writes.

        Returns:
            The version that has the index; after a dry run the newest version, as it would be then.

        Raises:
            InvalidRequestError: It is enabled already, there is no usable primary key, the arguments do not fit the
                table or its rows, or its store has no conditional writes; nothing was written.
            ConflictError: Others kept changing the table. Try again.
            CommitUnknownError: Read the table before trying again.
        """
        from memwal_core.jobs.thaw.enable_again import former_index, freeze_for_lost_index  # noqa: PLC0415 - most processes do without it

        names, regions = as_names(key), regions if isinstance(regions, int) else as_names(regions)
        state = self.base.state()
        former = former_index(self.opened, state)
        if former is not None:
            names = names or list(state.primary_key.columns or former.key)
            former.require_key(names)
        if names:
            require_not_enabled(state)
            state = check_key(self.base, names)
        chosen = list(specs)
        if regions:
            columns = state.require_primary_key().columns
            chosen.append(new_spec(1 + len(chosen), regions, state.schema, state.field_ids, columns))
        maintained = list(maintained_indexes)
        if former is not None:
            chosen, maintained = former.specs_or(chosen), maintained or list(former.maintained_indexes)
        again = former is not None
        planned = self.base.plan_mem_wal_index(state, chosen, maintained, beside_regions=again)
        if dry_run:
            return replace(state, details=planned)
        if names:
            define_key(self.base, state)
        if again:
            freeze_for_lost_index(self.opened)
        return self.base.create_mem_wal_index(chosen, maintained, beside_regions=again)

    def writer(
        self,
        *,
        spec_id: int | None = None,
        accept: Callable[[RegionValue], bool] | None = None,
        takeover: Takeover | str = Takeover.FAIL,
        **parts: Any,  # noqa: ANN401 - of ``TableWriter.open``
    ) -> TableWriter:
        """Open a writer; regions are claimed when their first row comes. Close it, or use it as a context.

        Args:
            spec_id: The region spec to follow; may be omitted if the table has exactly one.
            accept: Which region values are this writer's; all if None.
            takeover: Whether a region whose writer seems alive is left alone with an error (``fail``) or claimed,
                which stops that writer (``fence``).
            **parts: Further components of ``TableWriter.open``.

        Raises:
            InvalidRequestError: The table cannot be written, or the spec does not exist.
        """
        writer = TableWriter.open(self.base, spec_id=spec_id, accept=accept, takeover=takeover, **parts)
        self._open_writers = [*(each for each in self._open_writers if not each.is_closed), writer]
        self._has_written = True
        return writer

    def run(
        self,
        request: AskedOf[ReportT],
        *,
        holder: str | None = None,
        ticket: LeaseTicket | None = None,
        guard: CheckLease | None = None,
        executors: Executors | None = None,
        progress: Progress = unwatched,
    ) -> ReportT:
        """Run a job under its lease, and record it in the table's ledger; a dry run only plans.

        Args:
            request: For example ``MergeRequest()``; ``docs/jobs.md`` lists them.
            holder: Who runs it, unique per run; made up if None.
            ticket: Work under a lease that was taken before.
            guard: Take no lease, and call this before each write; it raises if the right to write is gone.
            executors: What does heavy work outside of this process, for example ``SparkExecutors``.
            progress: Is told a stage, how much of it is done, and of how much.

        Returns:
            The report of the job: ``outcome``, ``why()``, ``to_dict()`` and more.

        Raises:
            InvalidRequestError: The request does not fit the table or the settings.
            LeaseHeldError: Another run of the job is under way.
            ConflictError: Others changed the table each time. Run again.
            CommitUnknownError: A commit may or may not have landed. Run again.
            UnavailableError: Storage failed. Run again; what was done stands.
            CorruptionError: Stored state contradicts itself. Follow the runbook.
            FencedError: The lease is lost. What was done stands.
            FrozenError: The table is frozen. A person decides with ``thaw``.
        """
        require_kind("request", request, JobRequest, "pass the request of a job, as in run(memwal_core.MergeRequest())")
        report = execute(
            self.opened,
            cast("JobRequest", request),
            holder=holder,
            ticket=ticket,
            guard=guard,
            executors=executors,
            progress=progress,
        )
        return cast("ReportT", report)

    def checkpoint(
        self,
        *,
        regions: Sequence[RegionId] = (),
        fence: bool = False,
        dry_run: bool = False,
        progress: Progress = unwatched,
    ) -> CheckpointReport:
        """Bring every row that was written before the call into the base table: flush, merge, until nothing waits.

        Writers of this object are flushed first, and stay open. Rows that wait with another living writer keep
        waiting, and the outcome is ``CONFLICT``, unless ``fence`` says otherwise.

        Args:
            regions: Only these; empty = all.
            fence: Take regions from other living writers, too; they lose no acknowledged row, but must be opened again.
            dry_run: Only plan.
            progress: Is told a stage, how much of it is done, and of how much.

        Raises:
            LeaseHeldError: A flush or a merge is under way elsewhere. Try again.
            MemwalError: As for ``run``. What was done stands.
        """
        if not dry_run:
            for writer in self._open_writers:
                if not writer.is_closed:
                    writer.flush()
        from memwal_core.jobs.checkpoint.rounds import checkpoint  # noqa: PLC0415 - most processes do without it

        return checkpoint(self.opened, regions=regions, fence=fence, dry_run=dry_run, progress=progress)

    def freeze(self, reason: str, *, by: str) -> Freeze:
        """Stop every job of the table until a person thaws it; writers and readers go on.

        A freeze by hand stays as it is: the one that is returned has the reason that was given first.

        Args:
            reason: For whoever finds the table frozen.
            by: Who freezes it.

        Raises:
            InvalidRequestError: No reason is given, or nobody who freezes.
            UnavailableError: Storage failed; the table may not be frozen. Try again.
        """
        from memwal_core.jobs.thaw.run import freeze_by_hand  # noqa: PLC0415 - most processes do without it

        return freeze_by_hand(self.opened, reason, by)

    def thaw(self, decision: Decision | None = None, *, dry_run: bool = False) -> ThawReport:
        """End a freeze by a person's decision; without one, explain why the table is frozen and what can be chosen.

        Args:
            decision: What was decided, and by whom.
            dry_run: Only say what would happen.

        Raises:
            InvalidRequestError: The choice does not fit what froze the table.
            ConflictError: Another commit, or another decision, came first. Try again.
            UnavailableError: Storage failed. Try again; what was done stands.
        """
        from memwal_core.jobs.thaw.run import Decision, explain_freezes, thaw  # noqa: PLC0415 - most processes do without it

        if decision is None:
            return explain_freezes(self.opened)
        require_kind("decision", decision, Decision)
        return thaw(self.opened, decision, dry_run=dry_run)

    def status(self) -> TableStatus:
        """Read the state of the table and its regions.

        Raises:
            UnavailableError: Storage failed. Try again.
            InvalidRequestError: The table has no MemWAL index.
            CorruptionError: A manifest contradicts itself.
        """
        found = table_status(self.base, self.base.store, self.opened.manifests, self._concurrency)
        return replace(found, frozen=self.opened.freezes.active())

    def health(self) -> Health:
        """Judge the table by what a few requests per changed region show, as ``memwal status --check`` does.

        Garbage is measured if ``settings.status.measure_garbage`` says so, which lists every object.

        Returns:
            All findings, the most urgent first, with the level and the score that they amount to.

        Raises:
            InvalidRequestError: MemWAL was never enabled on the table.
            UnavailableError: Storage failed. Try again.
        """
        return self._examined(deep=False)

    def doctor(self, *, contents: bool = False, progress: Progress = unwatched) -> Health:
        """Judge the table by everything: the same as ``health``, and every invariant that takes listing every object,
        opening every flushed MemTable, or reading rows. ``docs/doctor.md`` lists the findings.

        Args:
            contents: Also read every row of the base table and of flushed MemTables.
            progress: Is told how many files were looked at.

        Returns:
            All findings, the most urgent first, with the level and the score that they amount to; ``verdict`` tells
            a table that MemWAL was never enabled on.

        Raises:
            UnavailableError: Storage failed. Try again.
        """  # noqa: D205 - what it adds is part of the one line
        return self._examined(deep=True, contents=contents, progress=progress)

    def why(self, region_id: RegionId) -> RegionAnswer:
        """Tell for each job whether it would act on a region now, and why.

        Raises:
            ObjectNotFoundError: There is no such region.
            InvalidRequestError: The table has no MemWAL index, or no usable primary key.
            UnavailableError: Storage failed. Try again.
            CorruptionError: A manifest contradicts itself. Run ``doctor``.
        """
        from memwal_core.jobs.merge.survey import MergeSurveyor  # noqa: PLC0415 - most processes do without it
        from memwal_core.observe.why.reading import WhyContext, why  # noqa: PLC0415 - most processes do without it

        opened = self.opened
        surveyor = MergeSurveyor(opened.base, opened.base.store, opened.manifests, self._concurrency)
        registers = opened.ledger, opened.leases, opened.freezes
        return why(WhyContext(opened.base, opened.manifests, surveyor, *registers, opened.settings), region_id)

    def history(self, job: str | None = None) -> pa.Table:
        """Return the remembered runs of one job or of all (``RUNS_SCHEMA``), the newest last.

        Raises:
            InvalidRequestError: There is no such job.
            UnavailableError: Storage failed.
            CorruptionError: A history cannot be read.
        """
        from memwal_core.jobs.catalog import require_recorded  # noqa: PLC0415 - most processes do without it

        found = self.opened.ledger.table(job)
        if job is not None and not found.num_rows:
            require_recorded(job)
        return found

    @property
    def configuration(self) -> TableConfiguration:
        """Region specs and maintained indexes."""
        opened = self.opened
        return TableConfiguration(self.base, opened.manifests, self._concurrency, opened.freezes.require_thawed)

    def _examined(self, *, deep: bool, contents: bool = False, progress: Progress = unwatched) -> Health:
        from memwal_core.observe.health import examine  # noqa: PLC0415 - most processes do without it

        garbage = self._garbage()
        return examine(self.opened, deep=deep, garbage=garbage, contents=contents, progress=progress)

    def _garbage(self) -> GcPlan | None:
        if not self.opened.settings.status.measure_garbage:
            return None
        try:
            plan: GcPlan = self.run(GcRequest(dry_run=True)).plan
        except (CorruptionError, InvalidRequestError):
            return None  # On a damaged table nothing is known to be garbage.
        return plan

    @property
    def _concurrency(self) -> int:
        return self.opened.settings.storage.concurrency

    def _has_writers(self) -> bool:
        # What a closed writer did not flush is in the WAL only, which ``in_process`` reads and ``latest`` does not.
        return self._has_written

    def _region_writers(self) -> list[RegionWriter]:
        return [region for writer in self._open_writers if not writer.is_closed for region in writer.writers.values()]
