"""The facade for applications: one table, read as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self, TypeVar

import pyarrow as pa

from memwal_core.base_table import TableReader
from memwal_core.errors import CorruptionError, UnavailableError
from memwal_core.manifest import ManifestStore
from memwal_core.reader import Consistency, RegionHolder, Surveyor
from memwal_core.reader.cache import ReadCache
from memwal_core.reader.guard import KeyGuard, StoredFilters
from memwal_core.reader.opened import GenerationGoneError
from memwal_core.reader.scan import Scan, ScanRequest
from memwal_core.reader.text import TextQuery
from memwal_core.reader.vector import VectorQuery
from memwal_core.reader.view import TableView
from memwal_core.settings import Settings

_Result = TypeVar("_Result")
_ATTEMPTS = 4


class MemWalTable:
    """Reads a table through base table, flushed MemTables and unflushed rows, newest version of each row.

    Args:
        table: The base table.
        writers: Region writers of this process, for consistency ``in_process``.
        consistency: What to read where a call does not say.
        guard: Filters of flushed MemTables, for lookups; those that are stored beside them if None.
    """

    def __init__(
        self,
        table: TableReader,
        *,
        writers: Sequence[RegionHolder] = (),
        consistency: Consistency = Consistency.LATEST,
        guard: KeyGuard | None = None,
    ) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._consistency = consistency
        self._cache = ReadCache()
        self._guard: KeyGuard = guard if guard is not None else StoredFilters(table.store)
        manifests = ManifestStore(
            table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng
        )
        self._surveyor = Surveyor(table, manifests, writers)

    @classmethod
    def open(
        cls,
        uri: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        settings: Settings | None = None,
        writers: Sequence[RegionHolder] = (),
        consistency: Consistency = Consistency.LATEST,
    ) -> Self:
        """Open a table that exists.

        Args:
            uri: Path or address of the table.
            storage_options: Options of the object store under pylance's names.
            settings: Values; defaults if None.
            writers: Region writers of this process.
            consistency: What to read where a call does not say.

        Raises:
            ObjectNotFoundError: There is no table at the address.
            InvalidRequestError: The address or the options cannot be used.
        """
        table = TableReader.open(uri, storage_options=storage_options, settings=settings)
        return cls(table, writers=writers, consistency=consistency)

    def view(self, consistency: Consistency | None = None, version: int | None = None) -> TableView:
        """Look where the table's rows are now, or were in an old version.

        Args:
            consistency: Where to look; the table's default if None, ``snapshot`` with a version.
            version: An old version of the base table, read with the region snapshot it holds.

        Raises:
            InvalidRequestError: The table cannot be read so.
            ObjectNotFoundError: The version does not exist.
            CorruptionError: Stored state is damaged; run `memwal doctor`.
            UnavailableError: Storage failed. Try again.
        """
        chosen = consistency or (self._consistency if version is None else Consistency.SNAPSHOT)
        return TableView(self._table, self._surveyor.survey(chosen, version), self._guard, self._cache)

    def scan(
        self,
        request: ScanRequest | None = None,
        *,
        consistency: Consistency | None = None,
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
        consistency: Consistency | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Return the rows of a scan; errors as for ``run``."""
        return self.run(lambda view: view.scan(request).to_arrow(), consistency=consistency, version=version)

    def count(
        self, filter_sql: str | None = None, *, consistency: Consistency | None = None, version: int | None = None
    ) -> int:
        """Count rows; errors as for ``run``."""
        request = ScanRequest(filter_sql=filter_sql)
        return self.run(lambda view: view.scan(request).count(), consistency=consistency, version=version)

    def lookup(
        self,
        keys: pa.Table,
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency | None = None,
        version: int | None = None,
    ) -> pa.Table:
        """Return the rows of some keys, in their order; errors as for ``run`` and ``TableView.lookup``."""
        return self.run(lambda view: view.lookup(keys, columns), consistency=consistency, version=version)

    def vector_search(
        self, query: VectorQuery, *, consistency: Consistency | None = None, version: int | None = None
    ) -> pa.Table:
        """Return the nearest rows; errors as for ``run`` and ``TableView.vector_search``."""
        return self.run(lambda view: view.vector_search(query), consistency=consistency, version=version)

    def full_text_search(
        self, query: TextQuery, *, consistency: Consistency | None = None, version: int | None = None
    ) -> pa.Table:
        """Return the rows whose texts fit best; errors as for ``run`` and ``TableView.full_text_search``."""
        return self.run(lambda view: view.full_text_search(query), consistency=consistency, version=version)

    def run(
        self,
        query: Callable[[TableView], _Result],
        *,
        consistency: Consistency | None = None,
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
        missing = ""
        for _ in range(_ATTEMPTS):
            view = self.view(consistency, version)
            try:
                return query(view)
            except GenerationGoneError as error:
                if version is not None:
                    raise
                path = str(error.facts["path"])
                if path == missing:
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
