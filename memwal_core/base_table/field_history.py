"""Whether a field id still means the column that it meant under an older name.

Lance gives the highest id that no data file uses to the next new column. After a column was dropped
and the table compacted, a new column can so get the id of the dropped one, and a flushed MemTable
that holds the old column looks as if it held the new one. Between the two columns there is always a
version without the id, which tells them from a renamed column.
"""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.base_table.reading import TableReader
from memwal_core.errors import ObjectNotFoundError

MAX_VERSIONS = 1_000
"""Versions looked at before giving up."""


def was_renamed(table: TableReader, field_id: int, former_name: str, version: int) -> bool:
    """Tell whether the column with an id was renamed from an older name, and not made anew.

    Args:
        table: The base table.
        field_id: A top-level field id that the version has.
        former_name: The name that the id once had.
        version: The version to look back from.

    Returns:
        True if retained versions prove it. False also means that they no longer tell.

    Raises:
        UnavailableError: Storage failed.
    """
    for number in range(version, max(0, version - MAX_VERSIONS), -1):
        try:
            fields = table.dataset(number).lance_schema.fields()
        except ObjectNotFoundError:
            return False
        name = next((field.name() for field in fields if field.id() == field_id), None)
        if name == former_name:
            return True
        if name is None:
            return False
    return False


class Renamings:
    """What retained versions tell about renamed columns, each column asked for once.

    Args:
        table: The base table.
        version: The version to look back from.
    """

    def __init__(self, table: TableReader, version: int) -> None:
        """Ask nothing yet."""
        self._table = table
        self._version = version
        self._known: dict[tuple[int, str], bool] = {}

    def unproven(self, renamed: Mapping[int, str]) -> list[str]:
        """Return the former names of columns that may have been made anew instead; see ``was_renamed``.

        Args:
            renamed: Field id -> the name that it once had.

        Raises:
            UnavailableError: Storage failed.
        """
        return [name for field_id, name in renamed.items() if not self._was_renamed(field_id, name)]

    def _was_renamed(self, field_id: int, former_name: str) -> bool:
        known = self._known.get((field_id, former_name))
        if known is None:
            known = was_renamed(self._table, field_id, former_name, self._version)
            self._known[field_id, former_name] = known
        return known
