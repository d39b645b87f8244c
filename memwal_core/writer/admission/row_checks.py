"""Finds and describes the rows that do not fit, for the error that refuses their batch."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_core.native.casting import cast

SAMPLE_ROWS = 5
"""Rows that an error shows."""

_COUNTED = 1000
_SHOWN_CHARACTERS = 60
_SHOWN_COLUMNS = 12


def rows_that_do_not_cast(column: pa.ChunkedArray, wanted: pa.DataType) -> list[int]:
    """Return the numbers of the first thousand values that make a column's cast fail, ascending.

    The column is halved repeatedly, so that the work grows with the failing rows and not with all.
    """
    found: list[int] = []
    waiting = [(0, len(column))]
    while waiting and len(found) < _COUNTED:
        start, count = waiting.pop()
        if not count or _casts(column.slice(start, count), wanted):
            continue
        if count == 1:
            found.append(start)
            continue
        half = count // 2
        waiting += [(start + half, count - half), (start, half)]
    return found


def sample_rows(table: pa.Table, positions: Sequence[int], first_columns: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the first few of some rows as short texts by column; long values are cut and lists are counted.

    ``first_columns``, for example the key, are shown however wide the table is.
    """
    named = [name for name in dict.fromkeys([*first_columns, *table.schema.names]) if name in table.schema.names]
    shown = table.select(named[:_SHOWN_COLUMNS])
    columns = dict(zip(shown.schema.names, shown.columns, strict=True))
    # One by one, for pyarrow takes no rows of views and runs.
    return [
        {name: _shown(column.slice(position, 1)) for name, column in columns.items()}
        for position in positions[:SAMPLE_ROWS]
    ]


def _casts(column: pa.ChunkedArray, wanted: pa.DataType) -> bool:
    try:
        cast(column, wanted)
    except pa.ArrowException:
        return False
    return True


def _shown(value: pa.ChunkedArray) -> str:
    """Return one value as text; Arrow's own where Python has no such date, duration, zone or record."""
    try:
        (found,) = value.to_pylist()
    except (ValueError, OverflowError, LookupError):
        (chunk,) = (chunk for chunk in value.chunks if len(chunk))
        return _cut(chunk.to_string(skip_new_lines=True))
    if found is None:
        return "NULL"
    return f"{len(found)} values" if isinstance(found, list) else _cut(str(found))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
