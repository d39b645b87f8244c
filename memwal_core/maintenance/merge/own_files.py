"""The files that a pass wrote before its commit, and removing those that the commit does not need.

Until a commit is certain, nothing may be removed: a version that landed without our knowledge names
these files. Afterwards, and before anything is removed, the table is asked once more.
"""

from __future__ import annotations

import logging

from memwal_core.base_table import BaseTable
from memwal_core.base_table.rewrite import FragmentChange, data_paths, named_files
from memwal_core.errors import MemwalError
from memwal_core.maintenance.merge.staged_keys import files_of_other_attempts
from memwal_core.maintenance.merge.units import WrittenUnit

_log = logging.getLogger(__name__)


class OwnFiles:
    """What one pass wrote.

    Args:
        table: The base table.
        staging: The pass's staging directory.
        is_staged: Whether workers leave files there.

    Attributes:
        paths: Data files and deletion vectors, relative to the table.
    """

    def __init__(self, table: BaseTable, staging: str, *, is_staged: bool) -> None:
        """Begin with nothing."""
        self._table = table
        self._staging = staging
        self._is_staged = is_staged
        self.paths: set[str] = set()
        self._accepted: set[str] = set()

    def add_unit(self, written: WrittenUnit) -> None:
        """Take note of new fragments."""
        self.paths.update(path for document in written.documents for path in data_paths(document))
        if written.keys.path is not None:
            self._accepted.add(written.keys.path)

    def add_change(self, change: FragmentChange) -> None:
        """Take note of a deletion vector."""
        if change.deletion_path is not None:
            self.paths.add(change.deletion_path)

    def remove_unneeded(self, committed: int | None = None) -> tuple[str, ...]:
        """Remove what no version names; to be called only when the outcome is certain.

        Args:
            committed: The version that the pass made, if it made one. A later version need not name
                its files any more, but readers of this one need them.

        Returns:
            What could not be removed, relative to the table.
        """
        try:
            if self._is_staged:
                self.paths.update(files_of_other_attempts(self._table.store, self._staging, self._accepted))
            named = named_files(self._table.dataset())
            if committed is not None:
                named |= named_files(self._table.dataset(committed))
        except MemwalError as error:
            _log.warning("files of a merge stay behind [staging=%s, error=%s]", self._staging, error)
            return self.all()
        left = [path for path in sorted(self.paths - named) if not self._removed(path)]
        if self._is_staged and not self._removed_staging():
            left.append(self._staging)
        return tuple(left)

    def all(self) -> tuple[str, ...]:
        """Return everything that was written, relative to the table."""
        return (*sorted(self.paths), *((self._staging,) if self._is_staged else ()))

    def _removed(self, path: str) -> bool:
        try:
            self._table.store.delete(path)
        except MemwalError as error:
            _log.warning("a file of a merge stays behind [path=%s, error=%s]", path, error)
            return False
        return True

    def _removed_staging(self) -> bool:
        try:
            self._table.store.delete_directory(self._staging)
        except MemwalError as error:
            _log.warning("staged keys stay behind [path=%s, error=%s]", self._staging, error)
            return False
        return True
