"""A survey with its datasets opened, each once, as queries come to need them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import lance
import pyarrow as pa

from memwal_core.base_table import IsLive, TableReader, TextIndex, count_documents, read_coverage, read_text_index
from memwal_core.errors import ObjectNotFoundError
from memwal_core.generations import MergeTarget, open_generation
from memwal_core.ids import RegionId
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.inherited import inherited_values
from memwal_core.reader.plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.predicate import boxes_of
from memwal_core.reader.rows import FlushedRows, MemoryRows, mapping_of, read_flushed, unflushed_rows
from memwal_core.reader.sources import GenerationSource, SourceKind
from memwal_core.reader.superseded import BaseMask, find_superseded
from memwal_core.reader.survey import Survey
from memwal_core.reader.winners import RegionWinners, find_winners
from memwal_core.storage.concurrent import map_concurrently

_Made = TypeVar("_Made")


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
        self.survey = survey
        self.base = self._cache.base(
            (state.version, state.timestamp), lambda: table.dataset(state.version, self._cache.session)
        )
        self.uri = table.uri
        self._unfiltered = plan_read(survey, table.store.uri_of)
        self.key = state.require_primary_key().columns
        self.target = MergeTarget(state.schema, state.field_ids, self.key)
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

    def rows(self, source: GenerationSource) -> FlushedRows | MemoryRows:
        """Read the keys of a generation, once.

        Raises:
            GenerationGoneError: It is not there, or a file of it is not.
            UnavailableError: Storage failed.
            CorruptionError: It contradicts the base table.
            InvalidRequestError: Unflushed rows are of an older schema.
        """
        with self._lock:
            known = self._rows.get(source)
        if known is None:
            dataset = self.dataset(source)
            known = unflushed_rows(source, self.target) if dataset is None else self._flushed(source, dataset)
            with self._lock:
                self._rows[source] = known
        return known

    def _flushed(self, source: GenerationSource, dataset: lance.LanceDataset) -> FlushedRows:
        try:
            keyed = self._cache.keys((source.path, self._columns), lambda: read_flushed(source, dataset, self.target))
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error
        return FlushedRows(source, keyed, self.target, partial(self.inherited, source))

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

    def known_mask(self) -> BaseMask | None:
        """Return the mask of superseded base rows if a query of this view has needed it before."""
        return self._mask

    def mask(self) -> BaseMask:
        """Find the rows of the base table that newer generations of any region supersede, once.

        Raises:
            GenerationGoneError: A generation is not there.
            UnavailableError: Storage failed.
            CorruptionError: A generation contradicts the base table.
            InvalidRequestError: Unflushed rows are of an older schema.
        """
        if self._mask is None:
            keys = [region.keys for region in self.winners(self._unfiltered.regions)]
            schema = pa.schema([self.target.schema.field(name) for name in self.key])
            every = pa.concat_tables([schema.empty_table(), *keys]) if keys else schema.empty_table()
            self._mask = find_superseded(self.base, self.survey.state.num_rows, every, self.key)
        return self._mask

    def winners(self, regions: Sequence[RegionRead]) -> list[RegionWinners]:
        """Find the newest rows of regions; those without anything newer than the base are left out.

        Raises:
            GenerationGoneError: A generation is not there.
            UnavailableError: Storage failed.
            CorruptionError: A generation contradicts the base table.
            InvalidRequestError: Unflushed rows are of an older schema.
        """
        unread = [region for region in regions if region.generations and region.region_id not in self._winners]
        sources = [source for region in unread for source in region.generations]
        map_concurrently(self.rows, sources, self._table.settings.storage.concurrency)
        for region in unread:
            rows = [self.rows(each) for each in region.generations]
            self._winners[region.region_id] = find_winners(region.region_id, rows, self.key)
        return [self._winners[region.region_id] for region in regions if region.generations]

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
        mapping = mapping_of(dataset, self.target)
        if mapping.missing or mapping.renamed:
            return None
        try:
            return read_text_index(self._table, dataset, self.target.field_ids[column], source.directory)
        except ObjectNotFoundError as error:
            raise GenerationGoneError(source) from error

    def count_documents(self, index: TextIndex, is_live: IsLive) -> tuple[int, int]:
        """Count documents of an index, and their tokens; see ``base_table.count_documents``."""
        return count_documents(index, self._table.storage_options, is_live)

    def unindexed_fragments(self, index: str) -> tuple[int, ...]:
        """Return the base fragments that an index lacks.

        Raises:
            UnavailableError: Storage failed.
        """
        coverage = read_coverage(self._table, self.survey.state.version).named(index)
        return () if coverage is None else coverage.unindexed_fragments
