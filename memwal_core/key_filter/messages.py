"""The bytes of a key, column after column, laid out for hashing whole tables at once.

Each column contributes a zero byte, then an integer's little-endian bytes, or text and the byte
255, or a binary value's length as eight little-endian bytes and the value. This is how Rust hashes
such values, which pylance's filter rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.key_filter.siphash import Positions, Words, siphash_1_3, siphash_1_3_of_words
from memwal_core.region.spec.byte_form import ByteStrings, Longs, byte_form

_TAG_BYTES = 1
_TEXT_END = 0xFF
_LENGTH_BYTES = 8
_LONG_BYTES = 8


@dataclass(frozen=True, slots=True)
class _Column:
    form: Longs | ByteStrings
    integer_bytes: int
    is_text: bool

    def sizes(self, rows: int) -> Positions:
        """Return the bytes that each row of the column contributes."""
        if isinstance(self.form, Longs):
            return np.full(rows, _TAG_BYTES + self.integer_bytes, np.int64)
        return self.form.lengths + _TAG_BYTES + (1 if self.is_text else _LENGTH_BYTES)


def key_hashes(keys: pa.Table, columns: Sequence[str], *, stored_width: bool) -> Words:
    """Return a hash of each row's key.

    Args:
        keys: At least the key columns; integers, booleans, text or binary, no NULLs.
        columns: The key columns in key order.
        stored_width: Whether 32-bit integers contribute four bytes, as in pylance's filter, or all
            integers eight, so that equal numbers of any width have one hash.
    """
    parts = [_column(keys.column(name), stored_width=stored_width) for name in columns]
    rows = keys.num_rows
    if len(parts) == 1 and isinstance(parts[0].form, Longs) and parts[0].integer_bytes == _LONG_BYTES:
        return siphash_1_3_of_words(_words_of_long(parts[0].form.values))
    sizes = [part.sizes(rows) for part in parts]
    lengths = np.sum(sizes, axis=0) if sizes else np.zeros(rows, np.int64)
    starts = np.cumsum(lengths) - lengths
    data = np.zeros(int(lengths.sum()), np.uint8)
    begin = starts.copy()
    for part, size in zip(parts, sizes, strict=True):
        _place(data, begin + _TAG_BYTES, part)
        begin += size
    return siphash_1_3(data, starts, lengths)


def _column(values: pa.ChunkedArray, *, stored_width: bool) -> _Column:
    plain = values.combine_chunks()
    if isinstance(plain, pa.ChunkedArray):
        plain = pa.concat_arrays(plain.chunks)
    is_narrow = stored_width and pa.types.is_integer(plain.type)
    width = plain.type.bit_width // 8 if is_narrow else _LONG_BYTES
    is_text = pa.types.is_string(plain.type) or pa.types.is_large_string(plain.type)
    return _Column(byte_form(plain), width, bool(is_text))


def _words_of_long(values: Words) -> tuple[Words, Words]:
    """Return the two words of the messages of one integer column: tag and seven bytes, the last byte and the length."""
    length = np.uint64((_TAG_BYTES + _LONG_BYTES) << 56)
    return values << np.uint64(8), (values >> np.uint64(56)) | length


def _place(data: npt.NDArray[np.uint8], begin: Positions, column: _Column) -> None:
    form = column.form
    if isinstance(form, Longs):
        _place_integer(data, begin, form.values, column.integer_bytes)
        return
    if not column.is_text:
        _place_integer(data, begin, form.lengths.astype(np.uint64), _LENGTH_BYTES)
        begin = begin + _LENGTH_BYTES
    ends = np.cumsum(form.lengths)
    within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - form.lengths, form.lengths)
    data[np.repeat(begin, form.lengths) + within] = form.data[np.repeat(form.starts, form.lengths) + within]
    if column.is_text:
        data[begin + form.lengths] = _TEXT_END


def _place_integer(data: npt.NDArray[np.uint8], begin: Positions, values: Words, width: int) -> None:
    for byte in range(width):
        data[begin + byte] = (values >> np.uint64(8 * byte)).astype(np.uint8)
