"""The buffers of a packed Lance file as Arrow arrays, without a copy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.format.lance_file.encodings import COLUMN_ENCODING, ColumnPlan, bytes_encoding, page_priority, require
from memwal_core.format.lance_file.pack import ALIGNMENT
from memwal_core.format.wire import read_varint

_PAGE, _OFFSETS, _SIZES, _COUNT = 0x12, 0x0A, 0x12, 0x18
"""Tags of protobuf: field 2 of a ``ColumnMetadata``, and the first three fields of a page."""

_NUMBER_BUFFERS = (1, 2, 0)
"""Buffers of a page of numbers by its encoding: without NULLs, with some, with nothing else."""
_MAX_INT32 = 2**31 - 1
_TEXT_BUFFERS = 2
"""Where each value ends, and the bytes."""


@dataclass(frozen=True, slots=True)
class _Page:
    """What the metadata of a column says of one page.

    Attributes:
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
    require(metadata[:at] == COLUMN_ENCODING)
    pages: list[_Page] = []
    first_row = 0
    while at < len(metadata):
        require(metadata[at] == _PAGE)
        size, at = read_varint(metadata, at + 1)
        pages.append(_page(metadata[at : at + size], first_row))
        first_row += pages[-1].rows
        at += size
    require(at == len(metadata))
    return tuple(pages)


def _page(data: bytes, first_row: int) -> _Page:
    at = 0
    places = []
    if data[0] == _OFFSETS:
        size, at = read_varint(data, 1)
        sizes = at + size
        require(data[sizes] == _SIZES)
        size, size_at = read_varint(data, sizes + 1)
        end = size_at + size
        while at < sizes:
            offset, at = read_varint(data, at)
            length, size_at = read_varint(data, size_at)
            places.append((offset, length))
        require(at == sizes and size_at == end)
        at = end
    require(data[at] == _COUNT)
    rows, at = read_varint(data, at + 1)
    priority = page_priority(first_row)
    require(rows > 0 and data.endswith(priority))
    encoding = data[at : len(data) - len(priority)]
    is_text = len(places) == _TEXT_BUFFERS and encoding == bytes_encoding(places[1][1] + 1)
    return _Page(tuple(places), rows, encoding, is_text)


class Buffers:
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
            require(pages[0].rows == rows)
            return read(pages[0], self._take(pages[0].places), plan, data_type)
        require(sum(page.rows for page in pages) == rows)
        return pa.chunked_array([read(page, self._take(page.places), plan, data_type) for page in pages], data_type)

    def _take(self, places: tuple[tuple[int, int], ...]) -> list[pa.Buffer]:
        buffers = []
        for offset, length in places:
            require(offset == self.end and offset + length <= self._all.size)
            buffers.append(self._all.slice(offset, length))
            self.end = offset + length + -length % ALIGNMENT
        return buffers


def _numbers(page: _Page, buffers: list[pa.Buffer], plan: ColumnPlan, data_type: pa.DataType) -> pa.Array:
    kind = plan.encodings.index(page.encoding)
    require(len(buffers) == _NUMBER_BUFFERS[kind])
    rows = page.rows
    if not buffers:
        require(not plan.list_size)
        return pa.nulls(rows, data_type)
    values, validity = buffers[-1], buffers[0] if kind else None
    items = rows * (plan.list_size or 1)
    require(values.size == -(-items * plan.bits // 8) and (validity is None or validity.size == -(-rows // 8)))
    nulls = -1 if kind else 0
    if not plan.list_size:
        return pa.Array.from_buffers(data_type, rows, [validity, values], nulls)
    child = pa.Array.from_buffers(data_type.value_type, items, [None, values], 0)
    return pa.Array.from_buffers(data_type, rows, [validity], nulls, children=[child])


def _texts(page: _Page, buffers: list[pa.Buffer], plan: ColumnPlan, data_type: pa.DataType) -> pa.Array:
    require(page.is_text and buffers[0].size == page.rows * 8)
    size, offset_type = buffers[1].size, plan.offsets or np.int64
    require(size <= _MAX_INT32 or offset_type is np.int64)
    ends: npt.NDArray[np.uint64] = np.frombuffer(buffers[0], np.uint64)
    validity, nulls = None, 0
    if not _ascend_to(ends, size):
        beyond = np.uint64(size + 1)
        is_null = ends >= beyond
        ends = np.where(is_null, ends - beyond, ends)
        require(_ascend_to(ends, size))
        validity, nulls = pa.py_buffer(np.packbits(~is_null, bitorder="little")), -1
    offsets = np.zeros(page.rows + 1, offset_type)
    offsets[1:] = ends
    return pa.Array.from_buffers(data_type, page.rows, [validity, pa.py_buffer(offsets), buffers[1]], nulls)


def _ascend_to(ends: npt.NDArray[np.uint64], size: int) -> bool:
    return int(ends[-1]) == size and bool((ends[1:] >= ends[:-1]).all())
