"""The byte form of a column before hashing (decision G-02).

Integers, booleans, dates, times and timestamps are eight little-endian bytes of their stored
integer widened to int64 (uint64 by two's complement); text is UTF-8; binary is itself. A
timestamp's stored integer counts its own unit: changing the unit of a column changes its hashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.errors import InvalidRequestError

Mask: TypeAlias = npt.NDArray[np.bool_]

PADDING_BYTES = 4
"""Bytes around the data of ``ByteStrings``, so that any word that touches a value can be read."""


@dataclass(frozen=True, slots=True)
class Longs:
    """A column whose values are eight bytes each.

    Attributes:
        values: The bytes as little-endian numbers; undefined where NULL.
        valid: False where NULL; None when nothing is NULL.
    """

    values: npt.NDArray[np.uint64]
    valid: Mask | None


@dataclass(frozen=True, slots=True)
class ByteStrings:
    """A column whose values are byte strings.

    Attributes:
        data: The bytes of all values, padded by ``PADDING_BYTES`` on both sides.
        starts: Where each value begins in ``data``.
        lengths: Bytes of each value; 0 where NULL.
        valid: False where NULL; None when nothing is NULL.
    """

    data: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    valid: Mask | None


def has_byte_form(data_type: pa.DataType) -> bool:
    """Return whether values of a type have a byte form."""
    return _is_long(data_type) or _is_bytes(data_type)


def check_hashable(data_type: pa.DataType) -> None:
    """Refuse a type without a byte form."""
    if not has_byte_form(data_type):
        raise InvalidRequestError(
            "values of this type cannot be hashed to a region",
            remedy="hash an integer, boolean, date, time, text or binary column, or cast it in an expression",
            type=str(data_type),
        )


def byte_form(values: pa.Array) -> Longs | ByteStrings:
    """Return the byte form of a plain array (see ``columns.plain_array``); refuse a type without one."""
    check_hashable(values.type)
    valid: Mask | None = None
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
    return Longs(_longs(values), valid) if _is_long(values.type) else _byte_strings(values, valid)


def _is_long(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_temporal(data_type)
        or pa.types.is_null(data_type)
    ) and not pa.types.is_interval(data_type)


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def _longs(values: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.uint64)
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.int64())
    if values.null_count:
        values = pc.fill_null(values, 0)
    numbers = values.to_numpy(zero_copy_only=False)
    return numbers.astype(np.int64, copy=False).view(np.uint64)  # type: ignore[no-any-return]


def _byte_strings(values: pa.Array, valid: Mask | None) -> ByteStrings:
    offsets = _offsets(values)
    first = int(offsets[0]) if len(values) else 0
    size = (int(offsets[-1]) if len(values) else 0) - first
    data = np.zeros(size + 2 * PADDING_BYTES, np.uint8)
    if size:
        data[PADDING_BYTES : PADDING_BYTES + size] = np.frombuffer(values.buffers()[-1], np.uint8, size, first)
    lengths = np.diff(offsets)
    if valid is not None:
        lengths = np.where(valid, lengths, 0)
    return ByteStrings(data, offsets[:-1] - first + PADDING_BYTES, lengths, valid)


def _offsets(values: pa.Array) -> npt.NDArray[np.int64]:
    rows = len(values)
    if pa.types.is_fixed_size_binary(values.type):
        return (np.arange(rows + 1, dtype=np.int64) + values.offset) * values.type.byte_width  # type: ignore[no-any-return]
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    kind = np.dtype(np.int64 if large else np.int32)
    if not rows:
        return np.zeros(1, np.int64)
    found = np.frombuffer(values.buffers()[1], kind, rows + 1, values.offset * kind.itemsize)
    return found.astype(np.int64, copy=False)
