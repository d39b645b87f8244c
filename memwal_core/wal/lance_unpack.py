"""Reading a Lance file that ``lance_file`` packed, from its bytes and without a copy.

Lance's reader takes several times as long for a small file as all the rest of a replayed entry: it
opens an object store, fetches each part of the file in a task and copies every value (decision 0016).
A file that was packed here is known to the byte, so its pages are taken as Arrow's buffers.

Everything is compared with what ``pack`` writes. A file that differs in any way, though it may be a
correct Lance file, is left to Lance's own reader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.wal.lance_file import (
    ALIGNMENT,
    COLUMN_ENCODING,
    FOOTER,
    FOOTER_VERSION,
    MAGIC,
    PLACE,
    ColumnPlan,
    NotPlainError,
    bytes_encoding,
    column_plans,
    is_plain,
    page_priority,
)

_SCHEMA, _ROWS = 0x0A, 0x10
"""Tags of protobuf: fields 1 and 2 of a ``FileDescriptor``."""
_ENTRY, _KEY, _VALUE = 0x2A, 0x0A, 0x12
"""Field 5 of a ``Schema``, and the two fields of an entry of a map."""
_PAGE, _OFFSETS, _SIZES, _COUNT = 0x12, 0x0A, 0x12, 0x18
"""Field 2 of a ``ColumnMetadata``, and the first three fields of a page."""

_NUMBER_BUFFERS = (1, 2, 0)
"""Buffers of a page of numbers by its encoding: without NULLs, with some, with nothing else."""
_MAX_INT32 = 2**31 - 1
_TEXT_BUFFERS = 2
"""Where each value ends, and the bytes."""


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """What is known of all files with one description of their schema; made by ``known_schema``.

    Attributes:
        schema: The schema, without metadata of its own.
        types: Of its columns.
        metadata: That metadata.
        columns: How each column is laid out.
    """

    schema: pa.Schema
    types: tuple[pa.DataType, ...]
    metadata: Mapping[bytes, bytes]
    columns: tuple[ColumnPlan, ...]


FindSchema = Callable[[bytes, int], KnownSchema | None]
"""Looks a schema up by the description of it in a file, and the number of columns there."""


def known_schema(schema: pa.Schema) -> KnownSchema | None:
    """Prepare the reading of files of a schema; None if their columns are not plain."""
    if not is_plain(schema):
        return None
    return KnownSchema(schema.remove_metadata(), tuple(schema.types), dict(schema.metadata or {}), column_plans(schema))


def unpack(data: bytes, find_schema: FindSchema) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Read a file that ``pack`` laid out.

    Args:
        data: The whole file, its checksum verified: values are not looked at, only where they lie.
        find_schema: Knows what the description of a schema means.

    Returns:
        The rows, which share memory with ``data``, the schema without metadata of its own; and
        that metadata.

    Raises:
        NotPlainError: The file is not exactly what ``pack`` writes; let Lance read it.
    """
    try:
        return _unpacked(data, find_schema)
    except (IndexError, OverflowError, struct.error, ValueError) as error:  # pyarrow's errors are ValueErrors.
        raise NotPlainError from error


def _unpacked(data: bytes, find_schema: FindSchema) -> tuple[pa.Table, dict[bytes, bytes]]:
    start, end, columns = _columns(data)
    message, metadata, rows = _descriptor(data[start:end])
    known = find_schema(message, len(columns))
    if known is None or len(known.columns) != len(columns):
        raise NotPlainError
    buffers = _Buffers(data)
    arrays = [
        buffers.column(column, plan, data_type, rows)
        for column, plan, data_type in zip(columns, known.columns, known.types, strict=True)
    ]
    _require(buffers.end == start)
    return pa.Table.from_arrays(arrays, schema=known.schema), {**known.metadata, **metadata}


def _columns(data: bytes) -> tuple[int, int, list[bytes]]:
    """Return where the descriptor starts and ends, and the metadata of each column."""
    footer = len(data) - FOOTER.size
    columns_start, column_places, buffer_places, buffers, count, *rest = FOOTER.unpack_from(data, footer)
    _require(buffers == 1 and rest == [*FOOTER_VERSION, MAGIC] and buffer_places + PLACE.size == footer)
    _require(column_places + count * PLACE.size == buffer_places)
    start, size = PLACE.unpack_from(data, buffer_places)
    _require(start + size == columns_start)
    at = columns_start
    columns = []
    for place, length in PLACE.iter_unpack(data[column_places:buffer_places]):
        _require(place == at)
        at += length
        columns.append(data[place:at])
    _require(at == column_places)
    return start, columns_start, columns


def _descriptor(data: bytes) -> tuple[bytes, dict[bytes, bytes], int]:
    """Return the description of the schema, the metadata and the number of rows of a ``FileDescriptor``."""
    _require(data[0] == _SCHEMA)
    size, at = _varint(data, 1)
    at += size
    message = data[:at]
    _require(data[at] == _SCHEMA)
    size, at = _varint(data, at + 1)
    end = at + size
    metadata = {}
    while at < end:
        _require(data[at] == _ENTRY)
        size, at = _varint(data, at + 1)
        key, middle = _text(data, at, _KEY)
        value, last = _text(data, middle, _VALUE)
        at += size
        _require(last == at)
        metadata[key] = value
    _require(at == end and data[at] == _ROWS)
    rows, at = _varint(data, at + 1)
    _require(at == len(data))
    return message, metadata, rows


@dataclass(frozen=True, slots=True)
class _Page:
    """What the metadata of a column says of one page.

    Attributes:
        places: Start and length of its buffers.
        rows: Its number of rows.
        encoding: Of its values.
        is_text: Whether that is the encoding of text or binary with as many bytes as there are.
    """

    places: tuple[tuple[int, int], ...]
    rows: int
    encoding: bytes
    is_text: bool


@lru_cache(maxsize=4096)
def _column_pages(metadata: bytes) -> tuple[_Page, ...]:
    """Return the pages of a column from its metadata, which is often the same in entries of equal size."""
    at = len(COLUMN_ENCODING)
    _require(metadata[:at] == COLUMN_ENCODING)
    pages: list[_Page] = []
    first_row = 0
    while at < len(metadata):
        _require(metadata[at] == _PAGE)
        size, at = _varint(metadata, at + 1)
        pages.append(_page(metadata[at : at + size], first_row))
        first_row += pages[-1].rows
        at += size
    _require(at == len(metadata))
    return tuple(pages)


def _page(data: bytes, first_row: int) -> _Page:
    at = 0
    places = []
    if data[0] == _OFFSETS:
        size, at = _varint(data, 1)
        sizes = at + size
        _require(data[sizes] == _SIZES)
        size, size_at = _varint(data, sizes + 1)
        end = size_at + size
        while at < sizes:
            offset, at = _varint(data, at)
            length, size_at = _varint(data, size_at)
            places.append((offset, length))
        _require(at == sizes and size_at == end)
        at = end
    _require(data[at] == _COUNT)
    rows, at = _varint(data, at + 1)
    priority = page_priority(first_row)
    _require(rows > 0 and data.endswith(priority))
    encoding = data[at : len(data) - len(priority)]
    is_text = len(places) == _TEXT_BUFFERS and encoding == bytes_encoding(places[1][1] + 1)
    return _Page(tuple(places), rows, encoding, is_text)


class _Buffers:
    """The buffers of a file, which lie one behind the other.

    Attributes:
        end: Where those end that have been taken.
    """

    __slots__ = ("_all", "end")

    def __init__(self, data: bytes) -> None:
        self._all = pa.py_buffer(data)
        self.end = 0

    def column(
        self, metadata: bytes, plan: ColumnPlan, data_type: pa.DataType, rows: int
    ) -> pa.Array | pa.ChunkedArray:
        """Return a column from its metadata."""
        pages = _column_pages(metadata)
        read = _numbers if plan.offsets is None else _texts
        if len(pages) == 1:
            _require(pages[0].rows == rows)
            return read(pages[0], self._take(pages[0].places), plan, data_type)
        _require(sum(page.rows for page in pages) == rows)
        return pa.chunked_array([read(page, self._take(page.places), plan, data_type) for page in pages], data_type)

    def _take(self, places: tuple[tuple[int, int], ...]) -> list[pa.Buffer]:
        buffers = []
        for offset, length in places:
            _require(offset == self.end and offset + length <= self._all.size)
            buffers.append(self._all.slice(offset, length))
            self.end = offset + length + -length % ALIGNMENT
        return buffers


def _numbers(page: _Page, buffers: list[pa.Buffer], plan: ColumnPlan, data_type: pa.DataType) -> pa.Array:
    kind = plan.encodings.index(page.encoding)
    _require(len(buffers) == _NUMBER_BUFFERS[kind])
    rows = page.rows
    if not buffers:
        _require(not plan.list_size)
        return pa.nulls(rows, data_type)
    values, validity = buffers[-1], buffers[0] if kind else None
    items = rows * (plan.list_size or 1)
    _require(values.size == -(-items * plan.bits // 8) and (validity is None or validity.size == -(-rows // 8)))
    nulls = -1 if kind else 0
    if not plan.list_size:
        return pa.Array.from_buffers(data_type, rows, [validity, values], nulls)
    child = pa.Array.from_buffers(data_type.value_type, items, [None, values], 0)
    return pa.Array.from_buffers(data_type, rows, [validity], nulls, children=[child])


def _texts(page: _Page, buffers: list[pa.Buffer], plan: ColumnPlan, data_type: pa.DataType) -> pa.Array:
    _require(page.is_text and buffers[0].size == page.rows * 8)
    size, offset_type = buffers[1].size, plan.offsets or np.int64
    _require(size <= _MAX_INT32 or offset_type is np.int64)
    ends: npt.NDArray[np.uint64] = np.frombuffer(buffers[0], np.uint64)
    validity, nulls = None, 0
    if not _ascend_to(ends, size):
        beyond = np.uint64(size + 1)
        is_null = ends >= beyond
        ends = np.where(is_null, ends - beyond, ends)
        _require(_ascend_to(ends, size))
        validity, nulls = pa.py_buffer(np.packbits(~is_null, bitorder="little")), -1
    offsets = np.zeros(page.rows + 1, offset_type)
    offsets[1:] = ends
    return pa.Array.from_buffers(data_type, page.rows, [validity, pa.py_buffer(offsets), buffers[1]], nulls)


def _ascend_to(ends: npt.NDArray[np.uint64], size: int) -> bool:
    return int(ends[-1]) == size and bool((ends[1:] >= ends[:-1]).all())


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends."""
    digit = data[at]
    at += 1
    if digit < 0x80:
        return digit, at
    number, shift = digit & 0x7F, 7
    while True:
        digit = data[at]
        at += 1
        number |= (digit & 0x7F) << shift
        if digit < 0x80:
            return number, at
        shift += 7


def _text(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    _require(data[at] == tag)
    size, at = _varint(data, at + 1)
    return data[at : at + size], at + size


def _require(holds: bool) -> None:
    if not holds:
        raise NotPlainError
