"""Whether a field id still means the column that it meant under an older name.

Lance gives the highest id that no data file uses to the next new column. So after a column was
dropped and the table compacted, a new column can get its id, and a flushed MemTable that holds the old
column looks as if it held the new one. Between the two columns there is always a version without
the id, which tells this apart from a renamed column.
"""

from __future__ import annotations

from collections.abc import Mapping

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.errors import ObjectNotFoundError

MAX_VERSIONS = 1_000
"""Versions read before giving up."""


def was_renamed(table: TableReader, field_id: int, former_name: str, version: int) -> bool:
    """Tell whether the column with an id was renamed from an older name, rather than added anew.

    True only if retained versions prove it; False may also mean that those versions are gone.
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
    """What retained versions tell about renamed columns; each column is looked up once."""

    def __init__(self, table: TableReader, version: int) -> None:
        self._table = table
        self._version = version
        self._known: dict[tuple[int, str], bool] = {}

    def unproven(self, renamed: Mapping[int, str]) -> list[str]:
        """Return the former names (by field id) of columns that may have been added anew; see ``was_renamed``."""
        return [name for field_id, name in renamed.items() if not self._was_renamed(field_id, name)]

    def _was_renamed(self, field_id: int, former_name: str) -> bool:
        known = self._known.get((field_id, former_name))
        if known is None:
            known = was_renamed(self._table, field_id, former_name, self._version)
            self._known[field_id, former_name] = known
        return known
