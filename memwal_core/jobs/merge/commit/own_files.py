"""The files that a pass wrote before its commit, and the removal of those that the commit does not need.

Nothing may be removed until the outcome of the commit is certain: a version that landed without our knowledge
names these files. Even then, the table is read once more before anything is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import FragmentChange, data_paths, named_files
from memwal_core.errors import MemwalError
from memwal_core.jobs.merge.work.staged_keys import files_of_other_attempts
from memwal_core.jobs.merge.work.units import WrittenUnit

_log = logging.getLogger(__name__)


class OwnFiles:
    """The files that one pass wrote.

    Args:
        staging: Where keys are staged, all of which are the pass's; nowhere if empty.

    Attributes:
        paths: Data files and deletion vectors, relative to the table.
    """

    def __init__(self, table: BaseTable, staging: str = "") -> None:
        self._table = table
        self._staging = staging
        self.paths: set[str] = set()
        self._accepted: set[str] = set()

    def add_paths(self, paths: Collection[str]) -> None:
        """Note files, relative to the table."""
        self.paths.update(paths)

    def add_unit(self, written: WrittenUnit) -> None:
        """Note new fragments."""
        self.paths.update(path for document in written.documents for path in data_paths(document))
        if written.keys.path is not None:
            self._accepted.add(written.keys.path)

    def add_change(self, change: FragmentChange) -> None:
        """Note a deletion vector."""
        if change.deletion_path is not None:
            self.paths.add(change.deletion_path)

    def remove_unneeded(self, committed: int | None = None) -> tuple[str, ...]:
        """Remove what no version names; call it only when the outcome is certain. Return what could not be removed.

        ``committed`` is the version that the pass made, if any: a later version need not name its files any
        more, but readers of this one need them. Paths are relative to the table.
        """
        try:
            if self._staging:
                self.paths.update(files_of_other_attempts(self._table.store, self._staging, self._accepted))
            named = set() if committed is None else named_files(self._table.dataset(committed))
            if self.paths - named:
                named |= named_files(self._table.dataset())
        except MemwalError as error:
            _log.warning("files of a merge not removed [staging=%s, error=%s]", self._staging, error)
            return self.all()
        left = [path for path in sorted(self.paths - named) if not self._removed(path)]
        if self._staging and not self._removed_staging():
            left.append(self._staging)
        return tuple(left)

    def all(self) -> tuple[str, ...]:
        """Return every path that was written, relative to the table."""
        return (*sorted(self.paths), *((self._staging,) if self._staging else ()))

    def _removed(self, path: str) -> bool:
        try:
            self._table.store.delete(path)
        except MemwalError as error:
            _log.warning("file of a merge not removed [path=%s, error=%s]", path, error)
            return False
        return True

    def _removed_staging(self) -> bool:
        try:
            self._table.store.delete_directory(self._staging)
        except MemwalError as error:
            _log.warning("staged keys not removed [path=%s, error=%s]", self._staging, error)
            return False
        return True
