"""A survey with its datasets opened, each once, as queries come to need them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import lance
import pyarrow as pa

from memwal_core.base_table import (
    TableReader,
    TextIndex,
    read_coverage,
    read_text_index,
)
from memwal_core.base_table.field_history import Renamings
from memwal_core.errors import ObjectNotFoundError
from memwal_core.generations import ColumnMapping, KeyedGeneration, MergeTarget, open_generation
from memwal_core.ids import RegionId
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.inherited import inherited_values
from memwal_core.reader.plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.predicate import boxes_of
from memwal_core.reader.rows import (
    FlushedRows,
    HeldRows,
    MemoryRows,
    RowRequest,
    mapping_of,
    read_flushed,
    read_flushed_whole,
    unmappable,
)
from memwal_core.reader.sorted_keys import SortedKeys, can_be_held, read_base_keys
from memwal_core.reader.sources import GenerationSource, SourceKind
from memwal_core.reader.superseded import BaseMask, find_superseded
from memwal_core.reader.survey import Survey
from memwal_core.reader.unflushed import unflushed_rows
from memwal_core.reader.winners import RegionWinners, find_winners
from memwal_core.storage import StoreKind
from memwal_core.storage.concurrent import map_concurrently

_Made = TypeVar("_Made")

_LOCAL_THREADS = 2
"""A local file is read sooner than many threads have taken turns."""

_SMALL_BYTES = 4 * 1024 * 1024
"""Rows of a flushed MemTable of that size are read along with its keys."""

_AHEAD_BYTES = 32 * 1024 * 1024
"""Of all that are read so for one scan."""


class GenerationGoneError(ObjectNotFoundError):
    """A flushed MemTable that the read needs is gone. Take a new view, which may find it merged."""

    def __init__(self, source: GenerationSource) -> None:
        """Name the generation."""
        super().__init__(
            "a flushed MemTable of this view is gone",
            remedy="take a new view of the table; if it stays, run `memwal doctor`",
            region_id=str(source.region_id),
            generation=source.generation,
            path=source.path,
        )


class OpenedTable:
    """One survey of a table. Safe to use from several threads.

    Args:
        table: The base table.
        survey: What was found.
        cache: Shared with other views of the table; its own if None.
    """

    def __init__(self, table: TableReader, survey: Survey, cache: ReadCache | None = None) -> None:
        """Open the base version."""
        state = survey.state
        self._table = table
        self._cache = cache if cache is not None else ReadCache()
        self._lock = threading.Lock()
        self._rows: dict[GenerationSource, FlushedRows | MemoryRows] = {}
        self._winners: dict[RegionId, RegionWinners] = {}
        self._mask: BaseMask | None = None
        self._remembered: dict[tuple[str, ...], Any] = {}
        self._renamings = Renamings(table, state.version)
        self.survey = survey
        self._version = (state.version, state.timestamp)
        self.base = self._cache.base(self._version, lambda: table.dataset(state.version, self._cache.session))
        self.uri = table.uri
        self._unfiltered = plan_read(survey, table.store.uri_of)
        self.key = state.require_primary_key().columns
        self.target = MergeTarget(state.schema, state.field_ids, self.key)
        sources = [each for region in self._unfiltered.regions for each in region.generations]
        # Flushed MemTables never change under their names, so that what they supersede does not either.
        is_stored = all(each.kind is SourceKind.FLUSHED for each in sources)
        self._mask_name = (*self._version, *(each.path for each in sources)) if is_stored else None
        self._columns = (state.schema, tuple(sorted(state.field_ids.items())), self.key)

    def remembered(self, name: tuple[str, ...], make: Callable[[], _Made]) -> _Made:
        """Return what queries of this view share, made by the first that needs it.

        Args:
            name: Says what it is.
            make: Makes it; made twice if two threads need it at once.
        """
        known: _Made | None = self._remembered.get(name)
        if known is None:
            known = self._remembered[name] = make()
        return known

    def plan(self, filter_sql: str | None = None) -> ReadPlan:
        """Decide what a query with a filter touches."""
        if filter_sql is None:
            return self._unfiltered
        return plan_read(self.survey, self._table.store.uri_of, boxes_of(filter_sql, self.survey.state.schema))

    def dataset(self, source: GenerationSource) -> lance.LanceDataset | None:
        """Open a flushed MemTable; None if the generation is in memory.

        Raises:
            GenerationGoneError: It is not there.
            UnavailableError: Storage failed.
        """
        if source.kind is not SourceKind.FLUSHED:
            return None
        try:
            return self._cache.generation(
                source.path,
                lambda: open_generation(source.path, self._table.storage_options, self._cache.session),
            )
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def rows(self, source: GenerationSource, ahead: tuple[str, ...] = ()) -> FlushedRows | MemoryRows:
        """Read the keys of a generation, once.

        Args:
            source: The generation.
            ahead: Columns of its rows to read and hold as well, if its keys are not known yet.

        Raises:
            GenerationGoneError: It is not there, or a file of it is not.
            UnavailableError: Storage failed.
            CorruptionError: It contradicts the base table.
            InvalidRequestError: Unflushed rows are of a schema that cannot be mapped to the table's.
        """
        with self._lock:
            known = self._rows.get(source)
        if known is None:
            dataset = self.dataset(source)
            known = self._unflushed(source) if dataset is None else self._flushed(source, dataset, ahead)
            with self._lock:
                self._rows[source] = known
        return known

    def _unflushed(self, source: GenerationSource) -> MemoryRows:
        return unflushed_rows(self._table, self.survey.state, source, self.target, partial(self.inherited, source))

    def _flushed(
        self, source: GenerationSource, dataset: lance.LanceDataset, ahead: tuple[str, ...] = ()
    ) -> FlushedRows:
        held = HeldRows()

        def read() -> KeyedGeneration:
            nonlocal held
            if not ahead:
                return read_flushed(source, dataset, self.target)
            keyed, held = read_flushed_whole(source, dataset, self.target, ahead)
            return keyed

        try:
            keyed = self._cache.keys((source.path, self._columns), read)
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error
        self._require_proven(source, keyed.mapping)
        return FlushedRows(source, keyed, self.target, partial(self.inherited, source), held)

    def mapping(self, source: GenerationSource, dataset: lance.LanceDataset) -> ColumnMapping:
        """Return how a flushed MemTable's columns become those of the table.

        Raises:
            InvalidRequestError: They cannot, or nothing proves that a column was renamed and not made anew.
            UnavailableError: Storage failed.
        """
        mapping = mapping_of(dataset, self.target)
        self._require_proven(source, mapping)
        return mapping

    def _require_proven(self, source: GenerationSource, mapping: ColumnMapping) -> None:
        unproven = self._renamings.unproven(mapping.renamed)
        if unproven:
            reason = f"no retained version proves that {unproven} were renamed, and not dropped and made anew"
            raise unmappable(source.path, reason)

    def inherited(self, source: GenerationSource, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return the values of columns that a generation lacks, from older sources (decision 0012).

        Args:
            source: The generation.
            keys: Keys of its rows, each once.
            columns: What it lacks.

        Raises:
            GenerationGoneError: An older generation is not there.
            UnavailableError: Storage failed.
        """
        region = next(each for each in self._unfiltered.regions if each.region_id == source.region_id)
        older = [self.rows(each) for each in region.generations if each.generation < source.generation]
        return inherited_values(keys, columns, older, self.base, self.target)

    def base_keys(self, asked: int) -> SortedKeys | None:
        """Return the keys of the base version if it is worth to hold them; see ``ReadCache.base_keys``.

        Args:
            asked: How many keys are looked up now.

        Raises:
            UnavailableError: Storage failed.
        """
        key = pa.schema([self.target.schema.field(name) for name in self.key])
        if not can_be_held(self.survey.state.num_rows, key):
            return None
        return self._cache.base_keys(self._version, asked, lambda: read_base_keys(self.base, self.key[0]))

    def sorted_keys(self, rows: FlushedRows | MemoryRows) -> SortedKeys | None:
        """Return the keys of a generation, sorted once per view; None if they are no integers."""
        column = rows.keys.column(0)
        if rows.keys.num_columns > 1 or not pa.types.is_integer(column.type):
            return None
        source = rows.source
        name = ("sorted keys", str(source.region_id), str(source.generation), str(source.kind), source.path)
        return self.remembered(name, lambda: SortedKeys(column.to_numpy()))

    def known_mask(self) -> BaseMask | None:
        """Return the mask of superseded base rows if a query of this view, or of an equal one, has needed it before."""
        if self._mask is None and self._mask_name is not None:
            self._mask = self._cache.known_mask(self._mask_name)
        return self._mask

    def mask(self) -> BaseMask:
        """Find the rows of the base table that newer generations of any region supersede, once.

        Raises:
            GenerationGoneError: A generation is not there.
            UnavailableError: Storage failed.
            CorruptionError: A generation contradicts the base table.
            InvalidRequestError: Unflushed rows are of a schema that cannot be mapped to the table's.
        """
        if self._mask is None:
            name = self._mask_name
            self._mask = self._find_mask() if name is None else self._cache.mask(name, self._find_mask)
        return self._mask

    def _find_mask(self) -> BaseMask:
        keys = [region.keys for region in self.winners(self._unfiltered.regions)]
        schema = pa.schema([self.target.schema.field(name) for name in self.key])
        every = pa.concat_tables([schema.empty_table(), *keys]) if keys else schema.empty_table()
        return find_superseded(self.base, self.survey.state.num_rows, every, self.key)

    def winners(self, regions: Sequence[RegionRead], request: RowRequest | None = None) -> list[RegionWinners]:
        """Find the newest rows of regions; those without anything newer than the base are left out.

        Args:
            regions: Which regions.
            request: What of the rows is going to be read, once; of small generations it is read along with the keys.

        Raises:
            GenerationGoneError: A generation is not there.
            UnavailableError: Storage failed.
            CorruptionError: A generation contradicts the base table.
            InvalidRequestError: Unflushed rows are of a schema that cannot be mapped to the table's.
        """
        unread = [region for region in regions if region.generations and region.region_id not in self._winners]
        sources = [source for region in unread for source in region.generations]
        ahead = self._read_ahead(sources, request)
        is_local = self._table.store.kind is StoreKind.LOCAL
        threads = _LOCAL_THREADS if is_local else self._table.settings.storage.concurrency
        map_concurrently(lambda source: self.rows(source, ahead.get(source, ())), sources, threads)
        for region in unread:
            rows = [self.rows(each) for each in region.generations]
            self._winners[region.region_id] = find_winners(region.region_id, rows, self.key)
        return [self._winners[region.region_id] for region in regions if region.generations]

    def _read_ahead(
        self, sources: Sequence[GenerationSource], request: RowRequest | None
    ) -> dict[GenerationSource, tuple[str, ...]]:
        """Return the small flushed MemTables whose rows to read along with their keys, with the columns."""
        if request is None or request.filter_sql is not None or set(request.columns) <= set(self.key):
            return {}
        chosen: dict[GenerationSource, tuple[str, ...]] = {}
        left = _AHEAD_BYTES
        for source in sources:
            if source.size_bytes is not None and source.size_bytes <= min(left, _SMALL_BYTES):
                chosen[source] = request.columns
                left -= source.size_bytes
        return chosen

    def text_index(self, column: str) -> TextIndex | None:
        """Return the base table's full-text index of a column, or None.

        Raises:
            UnavailableError: Storage failed.
        """
        return read_text_index(self._table, self.base, self.target.field_ids[column])

    def generation_text_index(self, source: GenerationSource, column: str) -> TextIndex | None:
        """Return a flushed MemTable's full-text index of a column that has the same name in it, or None.

        Raises:
            GenerationGoneError: It is not there.
            UnavailableError: Storage failed.
        """
        dataset = self.dataset(source)
        if dataset is None or column not in dataset.schema.names:
            return None
        mapping = self.mapping(source, dataset)
        if mapping.missing or mapping.renamed:
            return None
        try:
            return read_text_index(self._table, dataset, self.target.field_ids[column], source.directory)
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def unindexed_fragments(self, index: str) -> tuple[int, ...]:
        """Return the base fragments that an index lacks.

        Raises:
            UnavailableError: Storage failed.
        """
        coverage = read_coverage(self._table, self.survey.state.version).named(index)
        return () if coverage is None else coverage.unindexed_fragments
