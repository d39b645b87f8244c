"""Packing rows into a Lance file without a copy: what Lance's own writer would produce, uncompressed.

Lance's writer takes several times as long for a small file as all the rest of a durable put: it opens
an object store, looks for encodings that save space, and copies every value. An entry of a WAL lives
only until its rows are merged, so its pages are written as they lie in memory, in version 2.0 of the
format, whose plain encodings are exactly Arrow's buffers (decision 0016).

Anything that is not known to be plain is left to Lance's own writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from memwal_core.wal.checksum import Buffer

PLAIN_VERSION = "2.0"
"""The version of the format whose encodings are written here; any Lance since 0.17 reads it."""

ALIGNMENT = 64
_MAX_PAGE_BYTES = 32 * 1024 * 1024
_FEW_CHUNKS = 4
FOOTER = struct.Struct("<QQQIIHH4s")
PLACE = struct.Struct("<QQ")
MAGIC = b"LANC"
FOOTER_VERSION = (0, 3)
"""How a footer spells version 2.0."""


class NotPlainError(Exception):
    """A value needs more than a plain encoding; let Lance write the file."""


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """How the values of a column are laid out.

    Attributes:
        bits: Of one number; of one byte where values have different lengths.
        list_size: Numbers of a value; 0 where a value is no list.
        offsets: Type of Arrow's offsets; None where all values have one length.
        encodings: Ready encodings: without NULLs, with some, with nothing else.
    """

    bits: int
    list_size: int
    offsets: type[np.int32] | type[np.int64] | None
    encodings: tuple[bytes, bytes, bytes]


@dataclass(frozen=True, slots=True)
class FileShape:
    """What all files of one schema have in common; made by ``file_shape``.

    Attributes:
        schema: Their schema.
        message: Lance's own description of it.
        columns: How each column is laid out.
    """

    schema: pa.Schema
    message: bytes
    columns: tuple[ColumnPlan, ...]


def is_plain(schema: pa.Schema) -> bool:
    """Return whether rows of a schema can be packed here, as far as types tell."""
    return len(schema) > 0 and all(_is_plain(field.type) for field in schema)


def file_shape(schema: pa.Schema, message: bytes) -> FileShape:
    """Prepare the packing of rows.

    Args:
        schema: A schema for which ``is_plain`` holds.
        message: A ``FileDescriptor`` as an empty file of the same columns holds it, without metadata.
    """
    return FileShape(schema, message, column_plans(schema))


def column_plans(schema: pa.Schema) -> tuple[ColumnPlan, ...]:
    """Return how each column of a plain schema is laid out."""
    return tuple(_column(field.type) for field in schema)


def pack(rows: pa.Table, shape: FileShape, metadata: Mapping[str, str]) -> list[Buffer]:
    """Lay rows out as the content of a Lance file.

    Args:
        rows: At least one row, in the schema of ``shape``.
        shape: Of the file.
        metadata: Metadata of the schema.

    Returns:
        The parts of the file in order, the last one from the first byte behind the pages; they share
        memory with ``rows``.

    Raises:
        NotPlainError: A value needs more than a plain encoding.
    """
    parts: list[Buffer] = []
    end = 0
    columns: list[bytes] = []
    for column, plan in zip(rows.columns, shape.columns, strict=True):
        pages = [COLUMN_ENCODING]
        first_row = 0
        for chunk in _chunks(column):
            for count, encoding, buffers in _pages(chunk, plan):
                offsets, sizes = b"", b""
                for buffer in buffers:
                    size = memoryview(buffer).nbytes
                    offsets += _varint(end)
                    sizes += _varint(size)
                    padding = -size % ALIGNMENT
                    parts += (buffer, _ZEROS[:padding]) if padding else (buffer,)
                    end += size + padding
                places = _nested(1, offsets) + _nested(2, sizes) if buffers else b""
                pages.append(_nested(2, places + _number(3, count) + encoding + page_priority(first_row)))
                first_row += count
        columns.append(b"".join(pages))
    parts.append(_tail(end, columns, _descriptor(shape.message, metadata, rows.num_rows)))
    return parts


def empty_file(message: bytes, columns: int) -> bytes:
    """Return a file without rows, of which Lance tells the schema.

    Args:
        message: A ``FileDescriptor`` without metadata.
        columns: How many the schema has.
    """
    return _tail(0, [COLUMN_ENCODING] * columns, message)


def _tail(start: int, columns: Sequence[bytes], descriptor: bytes) -> bytes:
    """Return what follows the pages: the schema, the columns' metadata, two tables of places, the footer."""
    tail = bytearray(descriptor)
    columns_start = start + len(tail)
    places = bytearray()
    for column in columns:
        places += PLACE.pack(start + len(tail), len(column))
        tail += column
    column_places = start + len(tail)
    tail += places
    buffer_places = start + len(tail)
    tail += PLACE.pack(start, len(descriptor))
    tail += FOOTER.pack(columns_start, column_places, buffer_places, 1, len(columns), *FOOTER_VERSION, MAGIC)
    return bytes(tail)


def _descriptor(schema_message: bytes, metadata: Mapping[str, str], rows: int) -> bytes:
    """Return the ``FileDescriptor`` of a file: messages of protobuf that follow each other merge."""
    entries = b"".join(
        _nested(5, _nested(1, key.encode()) + _nested(2, value.encode())) for key, value in metadata.items()
    )
    return schema_message + _nested(1, entries) + _number(2, rows)


# -- columns ----------------------------------------------------------------------------------


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
            _nested(3, _number(1, list_size) + _nested(2, _without_nulls(items))) for items in (values, later_values)
        )
    encodings = (
        _encoding(_without_nulls(values)),
        _encoding(_with_nulls(later_values)),
        _encoding(_nested(2, _nested(3, b""))),
    )
    return ColumnPlan(bits, list_size, None, encodings)


# -- pages ------------------------------------------------------------------------------------


def _chunks(column: pa.ChunkedArray) -> Sequence[pa.Array]:
    """Return a column in few pieces: puts that share an entry are small, and each piece makes a page."""
    chunks: Sequence[pa.Array] = column.chunks
    if len(chunks) <= _FEW_CHUNKS:
        return chunks
    combined = column.combine_chunks()
    return combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]


def _pages(array: pa.Array, plan: ColumnPlan) -> Iterator[tuple[int, bytes, Sequence[Buffer]]]:
    """Yield rows, encoding and buffers of pages none of which is too large.

    Raises:
        NotPlainError: No plain encoding has room for a value.
    """
    rows = len(array)
    if not rows:
        return
    page = _bytes_page(array, plan) if plan.offsets is not None else _numbers_page(array, plan)
    size = sum(memoryview(buffer).nbytes for buffer in page[1])
    if size <= _MAX_PAGE_BYTES or rows == 1:
        yield rows, *page
        return
    step = max(1, rows * _MAX_PAGE_BYTES // (2 * size))
    for start in range(0, rows, step):
        yield from _pages(array.slice(start, step), plan)


def _numbers_page(array: pa.Array, plan: ColumnPlan) -> tuple[bytes, Sequence[Buffer]]:
    """Lay out numbers, or lists of them, as they lie in memory.

    Raises:
        NotPlainError: An item of a list is NULL.
    """
    without_nulls, with_nulls, only_nulls = plan.encodings
    nulls = array.null_count
    values: Buffer
    if plan.list_size:
        items = array.values  # Has an offset of its own, and ignores that of the list.
        if items.null_count and array.flatten().null_count:
            raise NotPlainError
        start, count = items.offset + array.offset * plan.list_size, len(array) * plan.list_size
        data = items.buffers()[1]
    elif nulls == len(array):
        return only_nulls, ()
    else:
        start, count, data = array.offset, len(array), array.buffers()[1]
    width = plan.bits // 8
    values = data.slice(start * width, count * width) if width else _bits(data, start, count)
    if not nulls:
        return without_nulls, (values,)
    return with_nulls, (_validity(array), values)


def _bytes_page(array: pa.Array, plan: ColumnPlan) -> tuple[bytes, Sequence[Buffer]]:
    """Lay out text or binary: where each value ends, moved up by one more than all bytes where it is NULL."""
    _, offsets, data = array.buffers()
    places = np.frombuffer(offsets, plan.offsets)[array.offset : array.offset + len(array) + 1]
    first, last = int(places[0]), int(places[-1])
    ends = places[1:].astype(np.uint64)
    if first:
        ends -= np.uint64(first)
    beyond = last - first + 1
    if array.null_count:
        ends[array.is_null().to_numpy(zero_copy_only=False)] += np.uint64(beyond)
    text: Buffer = data.slice(first, last - first) if data is not None else b""
    return bytes_encoding(beyond), (ends.view(np.uint8).data, text)


def bytes_encoding(beyond: int) -> bytes:
    """Return the encoding of a page of text or binary, by what is added to the end of a NULL."""
    return _encoding(_nested(6, _BYTES_ENCODING + _number(3, beyond)))


def page_priority(first_row: int) -> bytes:
    """Return the end of the metadata of a page that starts with a row of the file."""
    return _number(5, first_row) if first_row else b""


def _validity(array: pa.Array) -> Buffer:
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(buffer: pa.Buffer, start: int, count: int) -> Buffer:
    if start % 8 == 0:
        return buffer.slice(start // 8, -(-count // 8))
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[start : start + count]
    return np.packbits(bits, bitorder="little").data


_SMALL = [bytes((number,)) for number in range(0x80)]


# -- messages ---------------------------------------------------------------------------------


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _SMALL[number]
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _number(field: int, value: int) -> bytes:
    return _SMALL[field << 3] + _varint(value)


def _nested(field: int, content: bytes) -> bytes:
    return _SMALL[field << 3 | 2] + _varint(len(content)) + content


def _direct(url: bytes, content: bytes) -> bytes:
    return _nested(2, _nested(1, _nested(1, url) + _nested(2, content)))


def _encoding(content: bytes) -> bytes:
    """Return the field of a page that holds the encoding of its values."""
    return _nested(4, _direct(b"/lance.encodings.ArrayEncoding", content))


def _flat(bits: int, buffer: int) -> bytes:
    return _nested(1, _number(1, bits) + _nested(2, _number(1, buffer) if buffer else b""))


def _without_nulls(values: bytes) -> bytes:
    return _nested(2, _nested(1, _nested(1, values)))


def _with_nulls(values: bytes) -> bytes:
    return _nested(2, _nested(2, _nested(1, _flat(1, 0)) + _nested(2, values)))


_ZEROS = bytes(ALIGNMENT)
_BYTES_ENCODING = _nested(1, _without_nulls(_flat(64, 0))) + _nested(2, _flat(8, 1))
COLUMN_ENCODING = _nested(1, _direct(b"/lance.encodings.ColumnEncoding", _nested(1, b"")))
