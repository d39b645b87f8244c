"""A table as it was found at one moment, to be queried any number of times."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.explain import RegionNames
from memwal_core.reader.freshness import Freshness
from memwal_core.reader.guard import KeyGuard
from memwal_core.reader.lookup import Lookup
from memwal_core.reader.opened import OpenedTable
from memwal_core.reader.scan import Scan, ScanRequest
from memwal_core.reader.survey import Survey
from memwal_core.reader.text import TextColumn, TextQuery, TextSearch
from memwal_core.reader.vector import VectorQuery, VectorSearch


class TableView:
    """Rows of one moment. What happens to the table later does not show.

    Garbage collection may delete flushed MemTables once they are merged: a view is usable for the
    grace time (``gc.grace_s``) and then for as long as nothing of it was collected.

    Args:
        table: The base table.
        survey: Where the rows were found.
        guard: Filters of flushed MemTables, for lookups.
        cache: Shared with other views of the table; its own if None.
    """

    def __init__(self, table: TableReader, survey: Survey, guard: KeyGuard, cache: ReadCache | None = None) -> None:
        """Open the base version."""
        self._opened = OpenedTable(table, survey, cache)
        self._lookup = Lookup(self._opened, guard)
        self._texts: dict[str, TextColumn] = {}

    @property
    def freshness(self) -> Freshness:
        """How new the rows are."""
        return self._opened.plan().freshness

    @property
    def schema(self) -> pa.Schema:
        """The table's schema."""
        return self._opened.target.schema

    @property
    def key(self) -> tuple[str, ...]:
        """The primary key."""
        return self._opened.key

    def scan(self, request: ScanRequest | None = None) -> Scan:
        """Plan a scan; nothing is read yet.

        Raises:
            InvalidRequestError: A column does not exist.
        """
        return Scan(self._opened, request if request is not None else ScanRequest())

    def lookup(self, keys: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows of some keys; see ``Lookup.find``.

        Raises:
            InvalidRequestError: The keys do not fit the table, or a column does not exist.
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
        """
        return self._lookup.find(keys, columns)

    def explain_lookup(self, keys: pa.Table, names: RegionNames | None = None) -> str:
        """Return the plan of a lookup as text."""
        return self._lookup.explain(keys, names)

    def vector_search(self, query: VectorQuery) -> pa.Table:
        """Return the nearest rows; see ``VectorSearch.run``.

        Raises:
            InvalidRequestError: The query does not fit the table.
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
        """
        return VectorSearch(self._opened, query).run()

    def explain_vector_search(self, query: VectorQuery, names: RegionNames | None = None) -> str:
        """Return the plan of a vector search as text."""
        return VectorSearch(self._opened, query).explain(names)

    def full_text_search(self, query: TextQuery) -> pa.Table:
        """Return the rows whose texts fit best; see ``TextSearch.run``.

        Raises:
            InvalidRequestError: The query does not fit the table.
            GenerationGoneError: A flushed MemTable is not there; take a new view.
            UnavailableError: Storage failed.
        """
        return self._text_search(query).run()

    def explain_full_text_search(self, query: TextQuery, names: RegionNames | None = None) -> str:
        """Return the plan of a full-text search as text."""
        return self._text_search(query).explain(names)

    def _text_search(self, query: TextQuery) -> TextSearch:
        column = self._texts.get(query.column)
        if column is None:
            column = self._texts[query.column] = TextColumn(self._opened, query.column)
        return TextSearch(self._opened, self._lookup, column, query)
