"""A survey with its datasets opened, each once, when a query needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import lance
import pyarrow as pa

from memwal_core.base_table import TableReader, TextIndex, read_coverage, read_text_index
from memwal_core.base_table.history.fields import Renamings
from memwal_core.base_table.history.fragment_ages import fragments_of_merges
from memwal_core.base_table.reading.filter_text import require_whole_filter
from memwal_core.errors import DamagedError, InvalidRequestError, MemwalError, ObjectNotFoundError
from memwal_core.flushed.read import ColumnMapping, KeyedGeneration, MergeTarget, open_generation
from memwal_core.flushed.read.diagnosis import diagnose_generation
from memwal_core.ids import RegionId
from memwal_core.native.casting import no_rows
from memwal_core.reader.analysis.trace import NO_TRACE, ROWS, Trace
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.names import BASE, region_name, source_name
from memwal_core.reader.plan.predicate import boxes_of
from memwal_core.reader.plan.read_plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.plan.sources import GenerationSource, SourceKind
from memwal_core.reader.plan.survey import Survey
from memwal_core.reader.rows.backfilled import backfilled_values
from memwal_core.reader.rows.deletion_mask import DeletionMask, find_deletion_mask
from memwal_core.reader.rows.generation_rows import (
    FlushedRows,
    MemoryRows,
    PrereadRows,
    RowRequest,
    mapping_of,
    read_flushed,
    read_flushed_whole,
    unmappable,
)
from memwal_core.reader.rows.sorted_keys import SortedKeys, can_be_cached, read_base_keys
from memwal_core.reader.rows.unflushed import unflushed_rows
from memwal_core.reader.rows.winners import RegionWinners, find_winners
from memwal_core.storage import ObjectStore, StoreKind
from memwal_core.storage.concurrent import map_concurrently

_Made = TypeVar("_Made")

_LOCAL_THREADS = 2
"""More threads cost more on local files than they save."""

_SMALL_BYTES = 4 * 1024 * 1024
"""Flushed MemTables up to this size are prefetched along with their keys."""

_PREFETCH_BYTES = 32 * 1024 * 1024
"""Limit of all prefetched rows of one scan."""


class GenerationGoneError(ObjectNotFoundError):
    """A flushed MemTable that the read needs is gone. Take a new view, which may find it merged."""

    def __init__(self, source: GenerationSource) -> None:
        super().__init__(
            "a flushed MemTable of this view is gone",
            remedy="take a new view of the table; if the error persists, run `memwal doctor`",
            region_id=str(source.region_id),
            generation=source.generation,
            path=source.path,
        )
        self.source = source


class OpenedTable:
    """One survey of a table. Thread-safe.

    Methods that read a flushed MemTable raise ``GenerationGoneError`` if it was collected: take a new view. Unflushed
    rows or a flushed MemTable whose schema cannot be mapped to the table's raise ``InvalidRequestError``.
    """

    def __init__(
        self, table: TableReader, survey: Survey, cache: ReadCache | None = None, trace: Trace = NO_TRACE
    ) -> None:
        state = survey.state
        self._table = table
        self._cache = cache if cache is not None else ReadCache(table.session)
        self.trace = trace
        self._lock = threading.Lock()
        self._rows: dict[GenerationSource, FlushedRows | MemoryRows] = {}
        self._winners: dict[RegionId, RegionWinners] = {}
        self._mask: DeletionMask | None = None
        self._remembered: dict[tuple[str, ...], Any] = {}
        self._renamings = Renamings(table, state.version)
        self.survey = survey
        self._version = (state.version, state.timestamp)
        self.base = self._cache.base(self._version, self._open_base)
        self.uri = table.uri
        self._unfiltered = plan_read(survey, table.store.uri_of)
        self.key = state.merge_key()
        self.target = MergeTarget.of(state, self.key)
        sources = [each for region in self._unfiltered.regions for each in region.generations]
        # A flushed MemTable never changes under its name, and so neither does what it supersedes.
        is_stored = all(each.kind is SourceKind.FLUSHED for each in sources)
        self._mask_name = (*self._version, *(each.path for each in sources)) if is_stored else None
        # As bytes: some extension types, for example Lance's blobs, have no hash.
        self._columns = (state.schema.serialize().to_pybytes(), tuple(sorted(state.column_ids.items())), self.key)

    def _open_base(self) -> lance.LanceDataset:
        with self.trace.step("OpenExec", BASE):
            return self._table.dataset(self.survey.state.version)

    @property
    def store(self) -> ObjectStore:
        """The store of the table."""
        return self._table.store

    def remembered(self, name: tuple[str, ...], make: Callable[[], _Made]) -> _Made:
        """Return a value that queries of this view share; made twice if two threads need it at once."""
        known: _Made | None = self._remembered.get(name)
        if known is None:
            known = self._remembered[name] = make()
        return known

    @property
    def counted(self) -> tuple[str, ...]:
        """Columns to read where none is wanted: a batch without columns would have no length."""
        return self.key or (self.target.schema.names[0],)

    def require_key(self, purpose: str) -> None:
        """Refuse what only a primary key makes possible (``InvalidRequestError``)."""
        if not self.key:
            raise InvalidRequestError(
                f"the table has no primary key, without which MemWAL cannot {purpose}",
                remedy="scan with a filter, or query the base table with Lance after a merge",
                table=self.uri,
            )

    def plan(self, filter_sql: str | None = None) -> ReadPlan:
        """Decide what a query with a filter reads; ``DamagedError`` if it may need a region that cannot be read.

        ``InvalidRequestError``: Lance does not accept the filter, or would ignore its end.
        """
        if filter_sql is None:
            return self._unfiltered.require_sound()
        boxes = boxes_of(filter_sql, self.survey.state.schema)
        require_whole_filter(self.base, filter_sql)
        return plan_read(self.survey, self._table.store.uri_of, boxes).require_sound()

    @property
    def everything(self) -> ReadPlan:
        """What there is to read, damaged regions included: for queries that rule these out in a way of their own."""
        return self._unfiltered

    @contextmanager
    def explaining(self) -> Iterator[None]:
        """Turn the error of a flushed MemTable that cannot be read into one that names the file and what is wrong."""
        try:
            yield
        except (GenerationGoneError, DamagedError):
            raise
        except MemwalError as error:
            named = [error.facts.get(name) for name in ("path", "table", "uri")]
            regions = self._unfiltered.regions
            sources = [each for region in regions for each in (*region.generations, *region.merged_generations)]
            for source in sources:
                if source.kind is SourceKind.FLUSHED and source.path in named:
                    self.require_intact(source, error)
            raise

    def require_intact(self, source: GenerationSource, cause: MemwalError) -> None:
        """Raise ``DamagedError`` from a failure to read a flushed MemTable if one of its files is damaged."""
        found = diagnose_generation(self._table.store, source.region_id, source.directory.rpartition("/")[2])
        if found:
            known = {"region_id", "path", "cause", "generation"}
            more = {name: value for name, value in cause.facts.items() if name not in known}
            raise found[0].error(source.region_id, generation=source.generation, **more) from cause

    def dataset(self, source: GenerationSource) -> lance.LanceDataset | None:
        """Open a flushed MemTable; None if the generation is in memory."""
        if source.kind is not SourceKind.FLUSHED:
            return None
        try:
            return self._cache.generation(source.path, lambda: self._open_generation(source))
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def _open_generation(self, source: GenerationSource) -> lance.LanceDataset:
        table = self._table
        with self.trace.step("OpenExec", source_name(source)):
            return open_generation(source.path, table.storage_options, self._cache.session, table.store)

    def rows(self, source: GenerationSource, prefetch: tuple[str, ...] = ()) -> FlushedRows | MemoryRows:
        """Read the keys of a generation, once, and prefetch the columns ``prefetch`` if its keys are not cached."""
        with self._lock:
            known = self._rows.get(source)
        if known is None:
            dataset = self.dataset(source)
            with self.trace.step("ReadKeysExec", source_name(source)) as counts:
                known = self._unflushed(source) if dataset is None else self._flushed(source, dataset, prefetch)
                counts.update(keys=known.keys.num_rows, tombstones=int(known.deleted.sum()))
            with self._lock:
                self._rows[source] = known
        return known

    def _unflushed(self, source: GenerationSource) -> MemoryRows:
        return unflushed_rows(self._table, self.survey.state, source, self.target, partial(self.backfilled, source))

    def _flushed(
        self, source: GenerationSource, dataset: lance.LanceDataset, prefetch: tuple[str, ...] = ()
    ) -> FlushedRows:
        preread = PrereadRows()

        def read() -> KeyedGeneration:
            nonlocal preread
            if not prefetch:
                return read_flushed(source, dataset, self.target, self._table.store)
            keyed, preread = read_flushed_whole(source, dataset, self.target, self._table.store, prefetch)
            return keyed

        try:
            keyed = self._cache.keys((source.path, self._columns), read)
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error
        self._require_proven(source, keyed.mapping)
        return FlushedRows(source, keyed, self.target, partial(self.backfilled, source), preread)

    def mapping(self, source: GenerationSource, dataset: lance.LanceDataset) -> ColumnMapping:
        """Return how a flushed MemTable's columns become those of the table.

        Raises:
            InvalidRequestError: They cannot, or no version proves that a column was renamed and not re-created.
        """
        mapping = mapping_of(dataset, self.target)
        self._require_proven(source, mapping)
        return mapping

    def _require_proven(self, source: GenerationSource, mapping: ColumnMapping) -> None:
        unproven = self._renamings.unproven(mapping.renamed, mapping.replaced)
        if unproven:
            reason = f"no retained version proves that {unproven} were renamed, or replaced by columns of their names"
            raise unmappable(source.path, reason)

    def backfilled(self, source: GenerationSource, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Backfill columns that a generation lacks, from older sources; ``keys`` are distinct (decision 0012)."""
        if not self.key:
            # Rows without a key have no older version: the column was added after them.
            fields = [self.target.schema.field(name) for name in columns]
            return pa.table([pa.nulls(keys.num_rows, field.type) for field in fields], schema=pa.schema(fields))
        region = next(each for each in self._unfiltered.regions if each.region_id == source.region_id)
        older = [self.rows(each) for each in region.generations if each.generation < source.generation]
        return backfilled_values(keys, columns, older, self.base, self.target)

    def base_keys(self, asked: int) -> SortedKeys | None:
        """Return the keys of the base version, or None while caching them does not pay; see ``ReadCache.base_keys``."""
        key = pa.schema([self.target.schema.field(name) for name in self.key])
        if not can_be_cached(self.survey.state.num_rows, key):
            return None
        return self._cache.base_keys(self._version, asked, lambda: read_base_keys(self.base, self.key[0]))

    def sorted_keys(self, rows: FlushedRows | MemoryRows) -> SortedKeys | None:
        """Return a generation's keys, sorted once per view; None unless the key is one integer column."""
        column = rows.keys.column(0)
        if rows.keys.num_columns > 1 or not pa.types.is_integer(column.type):
            return None
        source = rows.source
        name = ("sorted keys", str(source.region_id), str(source.generation), str(source.kind), source.path)
        return self.remembered(name, lambda: SortedKeys(column.to_numpy()))

    def known_mask(self) -> DeletionMask | None:
        """Return the deletion mask if a query of this view, or of an equal one, needed it before."""
        if self._mask is None and self._mask_name is not None:
            self._mask = self._cache.known_mask(self._mask_name)
        return self._mask

    def mask(self) -> DeletionMask:
        """Return the rows of the base table that newer generations of any region supersede; computed once."""
        if self._mask is None:
            name = self._mask_name
            self._mask = self._find_mask() if name is None else self._cache.mask(name, self._find_mask)
        return self._mask

    def _find_mask(self) -> DeletionMask:
        keys = [region.keys for region in self.winners(self._unfiltered.regions)]
        schema = pa.schema([self.target.schema.field(name) for name in self.key])
        every = pa.concat_tables([no_rows(schema), *keys]) if keys else no_rows(schema)
        with self.trace.step("DeletionMaskExec", BASE) as counts:
            found = find_deletion_mask(self.base, every, self.key)
            counts["keys"] = every.num_rows
            return found

    def winners(self, regions: Sequence[RegionRead], request: RowRequest | None = None) -> list[RegionWinners]:
        """Find the newest rows of regions, leaving out regions without anything newer than the base table.

        ``request`` is what will be read of the rows, once; small generations prefetch it along with their keys.
        """
        unread = [region for region in regions if region.generations and region.region_id not in self._winners]
        sources = [source for region in unread for source in region.generations]
        prefetch = self._prefetched_columns(sources, request)
        is_local = self._table.store.kind is StoreKind.LOCAL
        threads = _LOCAL_THREADS if is_local else self._table.settings.storage.concurrency
        map_concurrently(lambda source: self.rows(source, prefetch.get(source, ())), sources, threads)
        for region in unread:
            rows = [self.rows(each) for each in region.generations]
            with self.trace.step("DeduplicateExec", region_name(region.region_id)) as counts:
                found = self._winners[region.region_id] = find_winners(region.region_id, rows, self.key, self.trace)
                counts.update(keys=found.keys.num_rows, **{ROWS: sum(len(each.live) for each in found.generations)})
        return [self._winners[region.region_id] for region in regions if region.generations]

    def _prefetched_columns(
        self, sources: Sequence[GenerationSource], request: RowRequest | None
    ) -> dict[GenerationSource, tuple[str, ...]]:
        """Return the small flushed MemTables to prefetch, and their columns."""
        if request is None or request.filter_sql is not None or set(request.columns) <= set(self.key):
            return {}
        chosen: dict[GenerationSource, tuple[str, ...]] = {}
        left = _PREFETCH_BYTES
        for source in sources:
            if source.size_bytes is not None and source.size_bytes <= min(left, _SMALL_BYTES):
                chosen[source] = request.columns
                left -= source.size_bytes
        return chosen

    def text_index(self, column: str) -> TextIndex | None:
        """Return the base table's full-text index of a column, or None."""
        return read_text_index(self._table, self.base, self.target.field_ids[column])

    def generation_text_index(self, source: GenerationSource, column: str) -> TextIndex | None:
        """Return a flushed MemTable's full-text index of a column, or None; None if any column was changed."""
        dataset = self.dataset(source)
        if dataset is None or column not in dataset.schema.names:
            return None
        if not self.mapping(source, dataset).is_direct:
            return None
        try:
            return read_text_index(self._table, dataset, self.target.field_ids[column], source.directory)
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def unindexed_fragments(self, index: str) -> tuple[int, ...]:
        """Return the base fragments that an index lacks."""
        coverage = read_coverage(self._table, self.survey.state.version).named(index)
        return () if coverage is None else coverage.unindexed_fragments

    def merged_fragments(self, fragments: Sequence[int]) -> frozenset[int]:
        """Return those of some base fragments whose rows are as a merge wrote them; see ``fragments_of_merges``."""
        name = (*self._version, *fragments)
        return self._cache.merged(name, lambda: fragments_of_merges(self._table, self.survey.state, fragments))
