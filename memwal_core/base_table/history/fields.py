"""Whether a field id still means the column, or the field inside of one, that it meant under an older name.

Lance gives the highest id that no data file uses to the next new column. So after a column was
dropped and the table compacted, a new column can get its id, and a flushed MemTable that holds the old
column looks as if it held the new one. Between the two columns there is always a version without
the id, which tells this apart from a renamed column.

An overwrite numbers all columns anew, so that ids from before it mean nothing after it. It drops the MemWAL index,
which tells it apart from other changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from memwal_core.base_table.reading.table_reader import TableReader
from memwal_core.errors import ObjectNotFoundError
from memwal_core.format.lance_field import field_path

MAX_VERSIONS = 1_000
"""Versions read before giving up."""


def was_renamed(table: TableReader, field_id: int, former_name: str, version: int) -> bool:
    """Tell whether the column with an id was renamed from an older name, rather than added anew.

    True only if retained versions prove it; False may also mean that those versions are gone.
    """
    for path in _paths(table, field_id, version):
        if not path:
            return False
        if path[-1] == former_name:
            return True
    return False


def was_made_anew(table: TableReader, field_id: int, name: str, version: int) -> bool:
    """Tell whether the column that has a name now was made after the one with an id, under that name, was dropped.

    False only if retained versions prove that an overwrite came between, after which both may be the same column.
    """
    return all(path is not None for path in _paths(table, field_id, version, until=name))


def _paths(table: TableReader, field_id: int, version: int, until: str = "") -> Iterator[tuple[str, ...] | None]:
    """Yield the names that lead to a field, empty if there is none, from a version down through those retained.

    None comes last where the table was overwritten; the field of the name ``until`` comes last, too.
    """
    for number in range(version, max(0, version - MAX_VERSIONS), -1):
        try:
            fields = table.dataset(number).lance_schema.fields()
            if table.manifests.read(number).mem_wal is None:
                yield None
                return
        except ObjectNotFoundError:
            return
        path = tuple(field_path(fields, field_id))
        yield path
        if path[-1:] == (until,):
            return


class Renamings:
    """What retained versions tell about renamed columns; each column is looked up once."""

    def __init__(self, table: TableReader, version: int) -> None:
        self._table = table
        self._version = version
        self._known: dict[tuple[int, str], bool] = {}

    def unproven(self, renamed: Mapping[int, str], replaced: Mapping[int, str]) -> list[str]:
        """Return the former names (by field id) of columns that may be other ones; see the functions above."""
        return [
            *(name for number, name in renamed.items() if not self._is_proven(was_renamed, number, name)),
            *(name for number, name in replaced.items() if not self._is_proven(was_made_anew, number, name)),
        ]

    def _is_proven(self, proof: Callable[[TableReader, int, str, int], bool], field_id: int, former_name: str) -> bool:
        known = self._known.get((field_id, former_name))
        if known is None:
            known = proof(self._table, field_id, former_name, self._version)
            self._known[field_id, former_name] = known
        return known
