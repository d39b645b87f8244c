"""Types of region values: their names in a spec, and one value as bytes in a manifest.

A region value identifies a region, so its type needs an exact equality. Floats (NaN, two zeros)
and types whose equal values have several forms (decimals, timestamps with units) are refused.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from types import MappingProxyType
from typing import NoReturn, TypeAlias

import pyarrow as pa

from memwal_core.errors import CorruptionError, InvalidRequestError

RegionScalar: TypeAlias = int | bool | str | bytes | datetime.date
"""One non-NULL component of a region value."""

RESULT_TYPES: Mapping[str, pa.DataType] = MappingProxyType(
    {
        "int8": pa.int8(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "uint8": pa.uint8(),
        "uint16": pa.uint16(),
        "uint32": pa.uint32(),
        "uint64": pa.uint64(),
        "boolean": pa.bool_(),
        "utf8": pa.string(),
        "large_utf8": pa.large_string(),
        "binary": pa.binary(),
        "large_binary": pa.large_binary(),
        "date32": pa.date32(),
        "date64": pa.date64(),
    }
)
"""Arrow type by the name that specs carry; the names are those that pylance writes."""


def parse_result_type(name: str) -> pa.DataType:
    """Return the Arrow type that a spec calls ``name``; refuse one that cannot identify a region."""
    if name not in RESULT_TYPES:
        raise _no_result_type(result_type=name)
    return RESULT_TYPES[name]


def result_type_name(data_type: pa.DataType) -> str:
    """Return the name under which specs carry an Arrow type; refuse one that cannot identify a region."""
    for name, known in RESULT_TYPES.items():
        if known.equals(data_type):
            return name
    raise _no_result_type(type=str(data_type))


def _no_result_type(**named: str) -> InvalidRequestError:
    return InvalidRequestError(
        "this type cannot be the type of a region value",
        remedy="use one of the supported result types",
        supported=", ".join(RESULT_TYPES),
        **named,
    )


def types_agree(found: pa.DataType, expected: pa.DataType) -> bool:
    """Tell whether values of ``found`` may be cast, checked, to a result type.

    The planner of expressions widens integers, and promoting a source column widens them too, so
    integers agree with integers; likewise text with text and binary with binary. Arithmetic on
    uint64 values beyond int64 gives decimals without a fraction, which agree with integers too.
    """
    return bool(
        found.equals(expected)
        or pa.types.is_null(found)
        or (_is_whole(found) and pa.types.is_integer(expected))
        or (_is_text(found) and _is_text(expected))
        or (_is_binary(found) and _is_binary(expected))
    )


def encode_scalar(value: RegionScalar, data_type: pa.DataType) -> bytes:
    """Return one value as little-endian Arrow scalar bytes (int32: 4 bytes, utf8: its bytes)."""
    try:
        if _is_text(data_type) or _is_binary(data_type):
            scalar = pa.scalar(value, data_type)
            return bytes(scalar.as_buffer())
        if pa.types.is_boolean(data_type):
            return bytes([pa.scalar(value, data_type).as_py()])
        column = pa.array([value], data_type)
    except (pa.ArrowException, OverflowError, TypeError) as error:
        raise InvalidRequestError(
            "this region value does not fit its type",
            remedy="pass a value of the field's result type",
            value=value,
            result_type=str(data_type),
        ) from error
    return bytes(column.buffers()[1])[: data_type.bit_width // 8]


def decode_scalar(stored: bytes, data_type: pa.DataType) -> RegionScalar:
    """Return the value that ``encode_scalar`` stored; ``CorruptionError`` if the bytes do not fit the type."""
    if _is_binary(data_type):
        return stored
    if _is_text(data_type):
        try:
            return stored.decode()
        except UnicodeDecodeError as error:
            _refuse_stored(stored, data_type, error)
    width = 1 if pa.types.is_boolean(data_type) else data_type.bit_width // 8
    if len(stored) != width or (pa.types.is_boolean(data_type) and stored not in {b"\0", b"\1"}):
        _refuse_stored(stored, data_type, None)
    if pa.types.is_boolean(data_type):
        return stored == b"\1"
    column = pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(stored)])
    try:
        value: RegionScalar = column[0].as_py()
    except (OverflowError, ValueError) as error:  # A date that Python does not have.
        _refuse_stored(stored, data_type, error)
    return value


def _refuse_stored(stored: bytes, data_type: pa.DataType, cause: Exception | None) -> NoReturn:
    raise CorruptionError(
        "a stored region value does not fit its field's type",
        remedy="change nothing; follow docs/runbooks/corrupt-region-manifest.md",
        stored=stored,
        result_type=str(data_type),
    ) from cause


def _is_whole(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or (pa.types.is_decimal(data_type) and data_type.scale == 0))


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type) or pa.types.is_large_string(data_type) or pa.types.is_string_view(data_type)
    )


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )
