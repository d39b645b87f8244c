"""How a Lance file of version 2.0 spells the plain encodings of columns and pages, as protobuf messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from memwal_core.format.wire import nested, number
from memwal_core.native.type_cache import type_cache


class NotPlainError(Exception):
    """A value needs more than a plain encoding; let Lance write or read the file."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the values of a column are laid out.

    Attributes:
        bits: Of one number; of one byte where values have different lengths.
        list_size: Numbers of a value; 0 where a value is not a list.
        offsets: Type of Arrow's offsets; None where all values have one length.
        encodings: Ready encodings: without NULLs, with some, with nothing else.
    """

    bits: int
    list_size: int
    offsets: type[np.int32] | type[np.int64] | None
    encodings: tuple[bytes, bytes, bytes]


def require(holds: bool) -> None:
    """Check something that is true of every plain file.

    Raises:
        NotPlainError: It does not hold.
    """
    if not holds:
        raise NotPlainError


def is_plain(schema: pa.Schema) -> bool:
    """Return whether rows of a schema can be packed here, as far as types tell."""
    return len(schema) > 0 and all(_is_plain(field.type) for field in schema)


def column_plans(schema: pa.Schema) -> tuple[ColumnPlan, ...]:
    """Return how each column of a plain schema is laid out."""
    return tuple(_column(field.type) for field in schema)


def bytes_encoding(beyond: int) -> bytes:
    """Return the encoding of a page of text or binary, by what is added to the end of a NULL."""
    return _encoding(nested(6, _BYTES_ENCODING + number(3, beyond)))


def page_priority(first_row: int) -> bytes:
    """Return the end of the metadata of a page that starts with a row of the file."""
    return number(5, first_row) if first_row else b""


@type_cache(1024)  # Every put asks for each of its columns.
def _is_plain(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return False
    if pa.types.is_fixed_size_list(data_type):
        return _is_number(data_type.value_type) and data_type.list_size > 0
    return pa.types.is_boolean(data_type) or _is_number(data_type) or _is_bytes(data_type) or _is_temporal(data_type)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def _is_temporal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type))


def _is_bytes(data_type: pa.DataType) -> bool:
    return _offset_type(data_type) is not None


def _offset_type(data_type: pa.DataType) -> type[np.int32] | type[np.int64] | None:
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return np.int32
    if pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type):
        return np.int64
    return None


def _column(data_type: pa.DataType) -> ColumnPlan:
    offsets = _offset_type(data_type)
    if offsets is not None:
        return ColumnPlan(8, 0, offsets, (b"", b"", b""))
    list_size = data_type.list_size if pa.types.is_fixed_size_list(data_type) else 0
    bits = data_type.value_type.bit_width if list_size else data_type.bit_width
    values, later_values = _flat(bits, 0), _flat(bits, 1)
    if list_size:
        values, later_values = (
            nested(3, number(1, list_size) + nested(2, _without_nulls(items))) for items in (values, later_values)
        )
    encodings = (
        _encoding(_without_nulls(values)),
        _encoding(_with_nulls(later_values)),
        _encoding(nested(2, nested(3, b""))),
    )
    return ColumnPlan(bits, list_size, None, encodings)


def _direct(url: bytes, content: bytes) -> bytes:
    return nested(2, nested(1, nested(1, url) + nested(2, content)))


def _encoding(content: bytes) -> bytes:
    """Return the field of a page that holds the encoding of its values."""
    return nested(4, _direct(b"/lance.encodings.ArrayEncoding", content))


def _flat(bits: int, buffer: int) -> bytes:
    return nested(1, number(1, bits) + nested(2, number(1, buffer) if buffer else b""))


def _without_nulls(values: bytes) -> bytes:
    return nested(2, nested(1, nested(1, values)))


def _with_nulls(values: bytes) -> bytes:
    return nested(2, nested(2, nested(1, _flat(1, 0)) + nested(2, values)))


_BYTES_ENCODING = nested(1, _without_nulls(_flat(64, 0))) + nested(2, _flat(8, 1))
COLUMN_ENCODING = nested(1, _direct(b"/lance.encodings.ColumnEncoding", nested(1, b"")))
