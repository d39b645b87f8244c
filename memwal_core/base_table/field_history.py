"""Whether a field id still means the column that it meant under an older name.

Lance gives the highest id that no data file uses to the next new column. After a column was dropped
and the table compacted, a new column can so get the id of the dropped one, and a flushed MemTable
that holds the old column looks as if it held the new one. Between the two columns there is always a
version without the id, which tells them from a renamed column.
"""

from __future__ import annotations

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
