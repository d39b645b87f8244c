"""A base table: what ``TableReader`` shows of it, and the commits that change it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import lance

from memwal_core.base_table.commit.committing import committing
from memwal_core.base_table.commit.create import creation_operation, new_details
from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit.entry_change import entry_change
from memwal_core.base_table.commit.strict_commit import removed_meanwhile, strict_commit
from memwal_core.base_table.commit_attempt import StrictCommit
from memwal_core.base_table.indexes.inventory import vector_columns_without_ivf
from memwal_core.base_table.reading.table_reader import Sources, TableReader
from memwal_core.base_table.state import TableState
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, MemwalError, ObjectNotFoundError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.configure import with_progress
from memwal_core.format.memwal_index.rules import check_any_commit, check_commit_without_rows
from memwal_core.format.paths import MEM_WAL_DIRECTORY
from memwal_core.format.table_manifest import MemWalEntry, read_manifest
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionSpec
from memwal_core.settings import Settings
from memwal_core.storage import ObjectStore, StoreKind
from memwal_core.storage.concurrent import run_two
from memwal_core.storage.probe import probe_conditional_put

_log = logging.getLogger(__name__)

_STORES_KNOWN_TO_BE_CONDITIONAL = (StoreKind.LOCAL, StoreKind.MEMORY)

DetailsChange = Callable[[MemWalIndexDetails], MemWalIndexDetails]


class BaseTable(TableReader):
    """One Lance table. Caches no version: every call reads the newest unless told one."""

    def __init__(self, store: ObjectStore, *, settings: Settings | None = None, sources: Sources | None = None) -> None:
        super().__init__(store, settings=settings, sources=sources)
        self._durable = DurableFiles(store)

    def committing(
        self, version: int | None = None, *, strictly: bool = False
    ) -> AbstractContextManager[lance.LanceDataset]:
        """Open a version for one of Lance's operations, whose commits go through the version catalog.

        Arguments and errors as for ``commit.committing.committing``.
        """
        return committing(self.store, self._durable, self._new_id(), version, strictly=strictly)

    def create_mem_wal_index(
        self, specs: Sequence[RegionSpec] = (), maintained_indexes: Sequence[str] = (), *, beside_regions: bool = False
    ) -> TableState:
        """Enable MemWAL on the table.

        Args:
            specs: How rows map to regions; without any, regions are made by hand.
            maintained_indexes: Base table indexes that MemTables maintain, without the primary
                key's own.
            beside_regions: The table may have regions, whose index is gone. Freeze it before: with nothing recorded
                as merged, a merge would bring old rows back.

        Returns:
            The version that has the index.

        Raises:
            InvalidRequestError: The table has a MemWAL index or regions already, no usable primary
                key, the arguments do not fit it, or its store has no conditional writes; nothing
                was written.
            ConflictError: Other commits came first in every attempt; try again.
            CommitUnknownError: Read the table before trying again.
        """
        if self.store.kind not in _STORES_KNOWN_TO_BE_CONDITIONAL:
            probe_conditional_put(self.store, f"{MEM_WAL_DIRECTORY}/_probe", self.rng)
        for attempt in range(self.settings.index.max_attempts):
            state = self.state()
            details = self.plan_mem_wal_index(state, specs, maintained_indexes, beside_regions=beside_regions)
            operation = creation_operation(state, details, self._new_id(), self.clock.now())
            try:
                made = self._commit(state, operation, lambda entry: entry, "enable MemWAL")
            except ConflictError as error:
                self._back_off(attempt, error)
                continue
            _log.info("MemWAL is enabled [table=%s, version=%d]", self.uri, made.version)
            self._warn_of_vectors_without_ivf(made)
            return made
        raise self._lost_every_attempt("enable MemWAL")

    def _warn_of_vectors_without_ivf(self, state: TableState) -> None:
        """Without rows there can be no index yet."""
        indexes = self.indexes(state.version) if state.num_rows else ()
        bare = vector_columns_without_ivf(state.schema, state.field_ids, indexes)
        if state.num_rows and bare:
            _log.warning(
                "vector columns have no IVF index, whose centroids and codebook MemTables would inherit; "
                "create it before writing [columns=%s]",
                bare,
            )

    def plan_mem_wal_index(
        self,
        state: TableState,
        specs: Sequence[RegionSpec] = (),
        maintained_indexes: Sequence[str] = (),
        *,
        beside_regions: bool = False,
    ) -> MemWalIndexDetails:
        """Return the details that ``create_mem_wal_index`` would commit on a version; errors as there."""
        if not beside_regions:
            self.require_no_regions(state)
        indexes = self.indexes(state.version)
        return new_details(state, specs, maintained_indexes, indexes, beside_regions=beside_regions)

    def update_details(
        self,
        change: Callable[[MemWalIndexDetails], MemWalIndexDetails | None],
        *,
        read: TableState | None = None,
        index_id: uuid.UUID | None = None,
        message: str = "update the MemWAL index",
    ) -> TableState:
        """Change the MemWAL index by compare-and-swap, repeated until no other commit comes between.

        Args:
            change: Gives the new details for those of the version that is replaced; None or equal
                details mean that there is nothing to do. Called once per attempt, so it must derive
                everything from its argument and must leave merge progress alone.
            read: The state to try first, to save a read.
            index_id: New id of the index, whose directory holds the external snapshot.
            message: Shown in the table's history.

        Returns:
            The version that has the change, or the one read if there was nothing to do.

        Raises:
            ConflictError: Other commits came first in every attempt; try later.
            CommitUnknownError: Read the table before trying again.
        """
        for attempt in range(self.settings.index.max_attempts):
            state = read if read is not None and attempt == 0 else self.state()
            old = self.require_mem_wal(state)
            new = change(old)
            if new is None or (new == old and index_id is None):
                return state
            check_commit_without_rows(old, new)
            try:
                return self._commit(state, _nothing_else(), entry_change(state, new, index_id), message)
            except ConflictError as error:
                self._back_off(attempt, error)
        raise self._lost_every_attempt(message)

    def strict_commit(
        self,
        operation: Any,  # noqa: ANN401
        *,
        read: TableState,
        change: DetailsChange,
        message: str,
    ) -> TableState:
        """Commit rows, deletions and merge progress together, onto exactly the version ``read``; return the new one.

        ``operation`` and ``change`` are derived from ``read``; merge progress may grow here.

        Raises:
            ConflictError: Another commit came first; plan again what changed. The files that the
                operation names are unreferenced.
            CommitUnknownError: Read the table before trying again; delete nothing.
        """
        old = self.require_mem_wal(read)
        new = change(old)
        check_any_commit(old, new)
        return self._commit(read, operation, entry_change(read, new, None), message)

    def declare_progress(self, progress: Mapping[RegionId, int], *, read: TableState, message: str) -> int:
        """Set the merge progress of some regions by a person's decision, without rows; return the new version.

        Unlike every other commit, this one may lower progress; index catch-up is lowered with it.

        Args:
            progress: Region -> highest generation that counts as merged from now on.
            read: The version that the decision was made on.
            message: Shown in the table's history.

        Raises:
            ConflictError: Another commit came first; decide again.
            CommitUnknownError: Read the table before trying again.
        """
        new = with_progress(self.require_mem_wal(read), progress)
        return self._commit(read, _nothing_else(), entry_change(read, new, None), message).version

    def is_own_version(self, version: int, doubt: CommitUnknownError) -> bool:
        """Tell whether a version is the one that a strict commit of unknown outcome was to make.

        Every attempt has a transaction of its own, and its version names it.

        Raises:
            ObjectNotFoundError: There is no such version, not yet or not any longer.
        """
        transaction = doubt.facts.get("transaction_id")
        return str(transaction).encode() in self.store.get(self.manifests.locate(version).path)

    def _commit(
        self,
        state: TableState,
        operation: Any,  # noqa: ANN401
        change: Callable[[MemWalEntry], MemWalEntry],
        message: str,
    ) -> TableState:
        attempt = StrictCommit(
            read_version=state.version,
            operation=operation,
            change_entry=change,
            transaction_id=self._new_id(),
            message=message,
            opened=state.opened,
            require_read=partial(self._require_same, state),
        )
        version, manifest, tidy = strict_commit(self.store, self._durable, attempt)
        try:
            opened, _ = run_two(self.store.kind, lambda: self._require_in_history(version), tidy)
            facts = read_manifest(len(manifest), lambda start, length: manifest[start : start + length])
            return self._state_of(opened, facts)
        except MemwalError as error:
            # The version was made. An error that meant the contrary would let the caller remove its files.
            raise CommitUnknownError(
                "the new version may not be part of the table's history",
                remedy="read the table before trying again; keep old versions longer than any job runs",
                **{**error.facts, "table": self.uri, "version": version, "transaction_id": attempt.transaction_id},
            ) from error

    def _require_same(self, state: TableState) -> None:
        """Require that a version is still what it was when it was read; an opened one does not notice if it is gone.

        A table that was dropped and made again may have a free place after any version.
        """
        try:
            found = self.manifests.read(state.version)
        except ObjectNotFoundError as error:
            raise removed_meanwhile(self.store, state.version) from error
        if (found.timestamp, found.mem_wal) != (state.timestamp, state.entry):
            raise removed_meanwhile(self.store, state.version)

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(bytes=self.ids.commit_id(), version=4)

    def make_durable(self) -> int:
        """Make the newest version durable, whoever committed it, and return it; do so before deleting what it replaces.

        Raises:
            CorruptionError: A file of the newest version is missing; delete nothing.
            UnavailableError: The disk or store refused; delete nothing, try later.
        """
        version = self.dataset().version
        while True:
            try:
                self._durable.sync_version(version)
            except ObjectNotFoundError as error:
                newest = self.dataset().version
                if newest == version:
                    raise CorruptionError(
                        "a file of the newest version of the table is missing",
                        remedy="delete nothing, and run `memwal doctor`",
                        **{**error.facts, "table": self.uri, "version": version},
                    ) from error
                version = newest  # The version was superseded and cleaned up meanwhile.
                continue
            return version

    def _require_in_history(self, version: int) -> lance.LanceDataset:
        """Open a version just made, and make sure that it is at the end of the table's history.

        If the versions after the one we read were cleaned up while we worked, their numbers are free
        again, and put-if-absent would accept a version that no reader will ever open.
        """
        opened = self.dataset()
        newest = opened.version
        if newest == version:
            return opened
        try:
            behind = self.manifests.locate(version + 1).modified < self.manifests.locate(version).modified
        except ObjectNotFoundError:
            behind = True
        if behind or newest < version:
            raise ConflictError("another version took its place", remedy="read the table again", newest=newest)
        return self.dataset(version)

    def _back_off(self, attempt: int, error: ConflictError) -> None:
        longest = min(self.settings.storage.retry_wait_max_s, self.settings.storage.retry_wait_s * 2**attempt)
        _log.info("another commit came first, trying again [table=%s, attempt=%d, error=%s]", self.uri, attempt, error)
        self.clock.sleep(self.rng.uniform(0, longest))

    def _lost_every_attempt(self, what: str) -> ConflictError:
        return ConflictError(
            "other commits came first in every attempt",
            remedy="try again when fewer jobs commit to the table",
            table=self.uri,
            operation=what,
            attempts=self.settings.index.max_attempts,
        )


def _nothing_else() -> lance.LanceOperation.UpdateConfig:
    """Return an operation that changes nothing, to carry a change of the MemWAL index alone."""
    return lance.LanceOperation.UpdateConfig(config_updates=lance.LanceOperation.UpdateMap(updates={}, replace=False))
