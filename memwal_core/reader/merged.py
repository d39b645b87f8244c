"""Reading a table as one: base table, flushed MemTables and unflushed rows, the newest version of each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from memwal_core.base_table import TableReader, TableState
from memwal_core.errors import CorruptionError, InvalidRequestError, UnavailableError
from memwal_core.native.arrow_input import as_table
from memwal_core.reader import Consistency, RegionHolder, Surveyor
from memwal_core.reader.analysis.trace import NO_TRACE, Trace
from memwal_core.reader.arguments import require_count
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.freshness import parse_consistency
from memwal_core.reader.history import ReadHistory
from memwal_core.reader.lookup.key_guard import KeyGuard, StoredFilters
from memwal_core.reader.lookup.key_regions import KeyRegions
from memwal_core.reader.opened import GenerationGoneError
from memwal_core.reader.plan.survey import Needs
from memwal_core.reader.scan.scan import Scan, ScanRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.reader.vector.search import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.region import ManifestStore

_Result = TypeVar("_Result")
_ATTEMPTS = 4


class MergedReader:
    """Reads a table through base table, flushed MemTables and unflushed rows, newest version of each row.

    Args:
        writers: Gives the region writers of this process whose MemTables are read, each time anew.
        consistency: What to read where a call does not say; if None, ``in_process`` where this process has writers,
            so that it reads its own writes, else ``latest``.
        guard: Filters of flushed MemTables, for lookups; those that are stored beside them if None.
    """

    def __init__(
        self,
        table: TableReader,
        *,
        writers: Callable[[], Sequence[RegionHolder]] = tuple,
        consistency: Consistency | str | None = None,
        guard: KeyGuard | None = None,
        history: ReadHistory | None = None,
        trace: Trace = NO_TRACE,
    ) -> None:
        """Keep the parts; nothing is read."""
        self._table = table = table.cached()
        self._writers = writers
        self._consistency = None if consistency is None else parse_consistency(consistency)
        self._cache = ReadCache(table.session)
        self._trace = trace
        self._guard: KeyGuard = guard if guard is not None else StoredFilters(table.store)
        manifests = ManifestStore(
            table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng
        )
        self._surveyor = Surveyor(table, manifests, writers, history=history)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._table.uri!r})"

    def view(self, consistency: Consistency | str | None = None, version: int | None = None) -> TableView:
        """Look where the table's rows are now, or were in an old version.

        Args:
            consistency: Where to look; the table's default if None, ``snapshot`` with a version.
            version: An old version of the base table, read with the region snapshot it holds.

        Raises:
            InvalidRequestError: The table cannot be read so.
            ObjectNotFoundError: The version does not exist.
            CorruptionError: Stored state is damaged; run `memwal doctor`.
        """
        return self._view(consistency, version)

    def _view(
        self,
        consistency: Consistency | str | None,
        version: int | None,
        needs: Callable[[TableState], Needs] | None = None,
    ) -> TableView:
        """Return a view, of the needed regions alone if they are told."""
        if version is not None:
            require_count("version", version, 1)
        chosen = self._default_consistency(version) if consistency is None else parse_consistency(consistency)
        if chosen is Consistency.IN_PROCESS and not self._has_writers():
            raise InvalidRequestError(
                "consistency `in_process` needs a writer of this process, and the table has none",
                remedy="write through `writer()` of the same table, or read with consistency `durable`",
                table=self._table.uri,
            )
        with self._trace.step("SurveyExec") as counts:
            survey = self._surveyor.survey(chosen, version, needs)
            counts["regions"] = len(survey.regions)
        return TableView(self._table, survey, self._guard, self._cache, self._trace)

    def _default_consistency(self, version: int | None) -> Consistency:
        if version is not None:
            return Consistency.SNAPSHOT
        return self._consistency or (Consistency.IN_PROCESS if self._has_writers() else Consistency.LATEST)

    def _has_writers(self) -> bool:
        return bool(self._writers())

    def scan(
        self,
        request: ScanRequest | None = None,
        *,
        consistency: Consistency | str | None = None,
        version: int | None = None,
    ) -> Scan:
        """Plan a scan of the present view; errors as for ``view`` and ``Scan``.

        A stream cannot begin again on its own: should a flushed MemTable vanish before the first
        batch, ``batches`` raises ``GenerationGoneError``, and a new scan finds the rows merged.
        """
        return self.view(consistency, version).scan(request)

    def to_arrow(
        self,
        request: ScanRequest | None = None,
        *,
        consistency: Consistency | str | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Return the rows of a scan; errors as for ``read``."""
        return self.read(lambda view: view.scan(request).to_arrow(), consistency=consistency, version=version)

    def count(
        self, filter_sql: str | None = None, *, consistency: Consistency | str | None = None, version: int | None = None
    ) -> int:
        """Count rows; errors as for ``read``."""
        request = ScanRequest(filter_sql=filter_sql)
        return self.read(lambda view: view.scan(request).count(), consistency=consistency, version=version)

    def lookup(
        self,
        keys: object,
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency | str | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Return the rows of some keys, in their order; errors as for ``read`` and ``TableView.lookup``."""
        table = as_table(keys)
        needs = partial(KeyRegions.of, keys=table)
        return self._read(lambda view: view.lookup(table, columns), consistency, version, needs)

    def vector_search(
        self, query: VectorQuery, *, consistency: Consistency | str | None = None, version: int | None = None
    ) -> pa.Table:
        """Return the nearest rows; errors as for ``read`` and ``TableView.vector_search``."""
        return self.read(lambda view: view.vector_search(query), consistency=consistency, version=version)

    def full_text_search(
        self, query: TextQuery, *, consistency: Consistency | str | None = None, version: int | None = None
    ) -> pa.Table:
        """Return the rows whose texts fit best; errors as for ``read`` and ``TableView.full_text_search``."""
        return self.read(lambda view: view.full_text_search(query), consistency=consistency, version=version)

    def read(
        self,
        query: Callable[[TableView], _Result],
        *,
        consistency: Consistency | str | None = None,
        version: int | None = None,
    ) -> _Result:
        """Run a query on a present view, and again on a newer one if a flushed MemTable vanished meanwhile.

        Args:
            query: Reads from the view it is given and returns when it has read everything.
            consistency: As for ``view``.
            version: As for ``view``.

        Raises:
            GenerationGoneError: An old version needs flushed MemTables that are collected.
            CorruptionError: A flushed MemTable is missing although the base table lacks its rows.
            UnavailableError: Storage failed, or flushed MemTables vanished each time.
        """
        return self._read(query, consistency, version)

    def _read(
        self,
        query: Callable[[TableView], _Result],
        consistency: Consistency | str | None,
        version: int | None,
        needs: Callable[[TableState], Needs] | None = None,
    ) -> _Result:
        missing = ""
        for _ in range(_ATTEMPTS):
            view = self._view(consistency, version, needs)
            try:
                return query(view)
            except GenerationGoneError as error:
                if version is not None:
                    raise
                path = str(error.facts["path"])
                if path == missing:
                    view.require_intact(error)
                    raise CorruptionError(
                        "a flushed MemTable is missing although its rows are not merged",
                        remedy="restore its directory from a backup; until then its region cannot be read",
                        **error.facts,
                    ) from error
                missing = path
        raise UnavailableError(
            "flushed MemTables vanished each time the table was read",
            remedy="raise `gc.grace_s`, which is shorter than a query takes",
            table=self._table.uri,
            attempts=_ATTEMPTS,
        )
