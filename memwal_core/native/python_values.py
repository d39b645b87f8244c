"""Values of columns as Python's, also where Python has no such date, duration or zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from memwal_core.native.casting import cast

_Replace = Callable[[pa.DataType], pa.DataType]


def python_values(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column; times as text where Python's reach less far, or are less exact."""
    if "time64[ns]" not in str(column.type):  # Python cuts those without a word.
        try:
            return list(column.to_pylist())
        except (OverflowError, ValueError, LookupError):
            pass
    return list(times_as_text(column).to_pylist())


def times_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with text in place of dates and times; those of zones that Arrow does not know are in UTC."""
    in_utc = _cast(column, _replaced(column.type, _in_known_zone))
    return _cast(in_utc, _replaced(column.type, lambda _kind: pa.string()))


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == wanted else cast(column, wanted)


def _replaced(kind: pa.DataType, replace: _Replace) -> pa.DataType:
    """Return a type with others in place of dates and times."""
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return replace(kind)
    if pa.types.is_dictionary(kind):
        inner = _replaced(kind.value_type, replace)
        return kind if inner == kind.value_type else inner
    if pa.types.is_struct(kind):
        return pa.struct([_replaced_in(field, replace) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_replaced_in(kind.key_field, replace), _replaced_in(kind.item_field, replace))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_replaced_in(kind.value_field, replace), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(_replaced_in(kind.value_field, replace))
    return pa.list_(_replaced_in(kind.value_field, replace)) if pa.types.is_list(kind) else kind


def _replaced_in(field: pa.Field, replace: _Replace) -> pa.Field:
    return field.with_type(_replaced(field.type, replace))


def _in_known_zone(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(kind) or kind.tz is None:
        return kind
    try:
        pa.array([0], kind).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.timestamp(kind.unit, "UTC")
    return kind
