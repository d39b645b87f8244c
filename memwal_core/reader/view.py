"""A table at one moment, to be queried any number of times."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.native.arrow_input import as_table
from memwal_core.reader.analysis.trace import NO_TRACE, Trace
from memwal_core.reader.arguments import require_kind
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.freshness import Freshness
from memwal_core.reader.lookup.key_guard import KeyGuard
from memwal_core.reader.lookup.lookup import Lookup
from memwal_core.reader.opened import GenerationGoneError, OpenedTable
from memwal_core.reader.plan.read_plan import ReadPlan
from memwal_core.reader.plan.survey import Survey
from memwal_core.reader.scan.scan import Scan, ScanRequest
from memwal_core.reader.text.search import TextColumn, TextQuery, TextSearch
from memwal_core.reader.vector.search import VectorQuery, VectorSearch


class TableView:
    """The rows of one moment; later changes of the table do not show.

    Garbage collection may delete flushed MemTables once they are merged: a view is safe for the grace time
    (``gc.grace_s``), and after that until something it needs is collected.

    Args:
        table: The base table.
        survey: Where the rows were found.
        guard: Filters of flushed MemTables, for lookups.
        cache: Shared with other views of the table; its own if None.
        trace: Collects what queries do.
    """

    def __init__(
        self,
        table: TableReader,
        survey: Survey,
        guard: KeyGuard,
        cache: ReadCache | None = None,
        trace: Trace = NO_TRACE,
    ) -> None:
        self._opened = OpenedTable(table, survey, cache, trace)
        self._lookup = Lookup(self._opened, guard)
        self._texts: dict[str, TextColumn] = {}

    @property
    def freshness(self) -> Freshness:
        """How new the rows are."""
        return self._opened.everything.freshness

    def require_intact(self, error: GenerationGoneError) -> None:
        """Raise ``DamagedError`` if a file of the flushed MemTable that is gone was lost."""
        self._opened.require_intact(error.source, error)

    @property
    def schema(self) -> pa.Schema:
        """The table's schema."""
        return self._opened.target.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key."""
        return self._opened.key

    def scan(self, request: ScanRequest | None = None) -> Scan:
        """Plan a scan; no row is read yet.

        Args:
            request: What to return; all rows and columns if None.

        Raises:
            InvalidRequestError: A column does not exist, the limit is negative, or Lance does not accept the filter.
                Correct the request.
        """
        return Scan(self._opened, request if request is not None else ScanRequest())

    def lookup(self, keys: object, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the newest versions of the rows with some keys.

        Args:
            keys: The key columns, in any order, as Arrow data; values not NULL. Repeated keys count once.
            columns: Columns of the result; all if None.

        Returns:
            One row per key that exists, in the order of the keys; the schema's metadata states the freshness.

        Raises:
            InvalidRequestError: The keys do not fit the table, or a column does not exist. Correct the request.
            GenerationGoneError: A flushed MemTable was collected; take a new view.
            UnavailableError: Storage failed; try again.
        """
        self._opened.require_key("look rows up")
        with self._opened.explaining():
            return self._lookup.find(as_table(keys), columns)

    def lookup_plan(self, keys: object) -> ReadPlan:
        """Return what a lookup reads, and which regions with unmerged rows the keys leave out."""
        self._opened.require_key("look rows up")
        return self._lookup.plan(as_table(keys))

    def explain_lookup(self, keys: object) -> str:
        """Return the plan of a lookup as text."""
        self._opened.require_key("look rows up")
        return self._lookup.explain(as_table(keys))

    def vector_search(self, query: VectorQuery) -> pa.Table:
        """Return the nearest rows.

        Args:
            query: The vector, and what to return.

        Returns:
            At most ``k`` rows, nearest first, with ``_distance`` (float32) as the last column; the schema's metadata
                states the freshness.

        Raises:
            InvalidRequestError: The query does not fit the table, or Lance does not accept the filter.
            GenerationGoneError: A flushed MemTable was collected; take a new view.
            UnavailableError: Storage failed; try again.
        """
        self._opened.require_key("search regions and the base table together")
        with self._opened.explaining():
            return VectorSearch(self._opened, query).run()

    def explain_vector_search(self, query: VectorQuery) -> str:
        """Return the plan of a vector search as text."""
        self._opened.require_key("search regions and the base table together")
        return VectorSearch(self._opened, query).explain()

    def full_text_search(self, query: TextQuery) -> pa.Table:
        """Return the rows whose texts fit the words best.

        Args:
            query: The words, and what to return.

        Returns:
            At most ``k`` rows, best first, with ``_score`` (float32) as the last column; the schema's metadata states
                the freshness.

        Raises:
            InvalidRequestError: The query does not fit the table, or Lance does not accept the filter.
            GenerationGoneError: A flushed MemTable was collected; take a new view.
            UnavailableError: Storage failed; try again.
        """
        with self._opened.explaining():
            return self._text_search(query).run()

    def explain_full_text_search(self, query: TextQuery) -> str:
        """Return the plan of a full-text search as text."""
        return self._text_search(query).explain()

    def _text_search(self, query: TextQuery) -> TextSearch:
        self._opened.require_key("search regions and the base table together")
        require_kind("query", query, TextQuery)
        require_kind("column", query.column, str, "name one column of the table")
        column = self._texts.get(query.column)
        if column is None:
            column = self._texts[query.column] = TextColumn(self._opened, query.column)
        return TextSearch(self._opened, self._lookup, column, query)
