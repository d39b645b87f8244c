"""A survey with its datasets opened, each once, as queries come to need them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import lance

from memwal_core.base_table import TableReader, TextIndex, read_coverage, read_text_index
from memwal_core.errors import ObjectNotFoundError
from memwal_core.generations import MergeTarget, open_generation
from memwal_core.reader.plan import ReadPlan, RegionRead, plan_read
from memwal_core.reader.predicate import boxes_of
from memwal_core.reader.rows import FlushedRows, MemoryRows, open_rows
from memwal_core.reader.sources import GenerationSource, SourceKind
from memwal_core.reader.survey import Survey
from memwal_core.reader.winners import RegionWinners, find_winners
from memwal_core.storage.concurrent import map_concurrently


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
    """

    def __init__(self, table: TableReader, survey: Survey) -> None:
        """Open the base version."""
        self._table = table
        self._lock = threading.Lock()
        self._datasets: dict[str, lance.LanceDataset] = {}
        self._rows: dict[GenerationSource, FlushedRows | MemoryRows] = {}
        self.survey = survey
        self.base = table.dataset(survey.state.version)
        self.uri = table.uri
        self._unfiltered = plan_read(survey, table.store.uri_of)
        self.key = survey.state.require_primary_key().columns
        self.target = MergeTarget(survey.state.schema, survey.state.field_ids, self.key)

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
        with self._lock:
            known = self._datasets.get(source.path)
        if known is None:
            try:
                known = open_generation(source.path, self._table.storage_options)
            except ObjectNotFoundError as error:
                raise GenerationGoneError(source) from error
            with self._lock:
                self._datasets[source.path] = known
        return known

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
            try:
                known = open_rows(source, dataset, self.target)
            except ObjectNotFoundError as error:
                raise GenerationGoneError(source) from error
            with self._lock:
                self._rows[source] = known
        return known

    def winners(self, regions: Sequence[RegionRead]) -> list[RegionWinners]:
        """Find the newest rows of regions; those without anything newer than the base are left out.

        Raises:
            GenerationGoneError: A generation is not there.
            UnavailableError: Storage failed.
            CorruptionError: A generation contradicts the base table.
            InvalidRequestError: Unflushed rows are of an older schema.
        """
        sources = [source for region in regions for source in region.generations]
        map_concurrently(self.rows, sources, self._table.settings.storage.concurrency)
        return [
            find_winners(region.region_id, [self.rows(each) for each in region.generations], self.key)
            for region in regions
            if region.generations
        ]

    def text_index(self, column: str) -> TextIndex | None:
        """Return the base table's full-text index of a column, or None.

        Raises:
            UnavailableError: Storage failed.
        """
        return read_text_index(self._table, self.base, self.target.field_ids[column])

    def unindexed_fragments(self, index: str) -> tuple[int, ...]:
        """Return the base fragments that an index lacks.

        Raises:
            UnavailableError: Storage failed.
        """
        coverage = read_coverage(self._table, self.survey.state.version).named(index)
        return () if coverage is None else coverage.unindexed_fragments
