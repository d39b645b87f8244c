"""Source columns in the one form that evaluation works on.

The same values may arrive chunked, dictionary-encoded or as views, and integers in any width.
None of that may change a region value (SPEC-11).
"""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.native.casting import cast

Column: TypeAlias = pa.Array | pa.ChunkedArray

_LARGEST_INT64 = 2**63 - 1


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type of a column's values without dictionary, run-end, view and extension forms."""
    if isinstance(data_type, pa.BaseExtensionType):
        return plain_type(data_type.storage_type)
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if pa.types.is_string_view(data_type):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(data_type) else data_type


def plain_array(column: Column) -> pa.Array:
    """Return a column as one array of its ``plain_type``."""
    column = cast(column, plain_type(column.type))
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def widened(values: pa.Array) -> pa.Array:
    """Return a plain array in the widest type of its kind, so that equal values stay equal.

    Integers become int64 (uint64 stays where a value does not fit), floats become double, text
    and binary lose their large forms.
    """
    kind = values.type
    if pa.types.is_uint64(kind):
        largest = pc.max(values).as_py()
        return values if largest is not None and largest > _LARGEST_INT64 else values.cast(pa.int64())
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return values.cast(pa.float64())
    if pa.types.is_large_string(kind):
        return values.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    return values
