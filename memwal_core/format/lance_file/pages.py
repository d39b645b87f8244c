"""The values of a column as pages of a Lance file, as they lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from memwal_core.format.checksum import Buffer
from memwal_core.format.lance_file.encodings import ColumnPlan, NotPlainError, bytes_encoding

_MAX_PAGE_BYTES = 32 * 1024 * 1024
_FEW_CHUNKS = 4


def few_chunks(column: pa.ChunkedArray) -> Sequence[pa.Array]:
    """Return a column in few pieces: puts that share an entry are small, and each piece makes a page."""
    chunks: Sequence[pa.Array] = column.chunks
    if len(chunks) <= _FEW_CHUNKS:
        return chunks
    combined = column.combine_chunks()
    return combined.chunks if isinstance(combined, pa.ChunkedArray) else [combined]


def pages_of(array: pa.Array, plan: ColumnPlan) -> Iterator[tuple[int, bytes, Sequence[Buffer]]]:
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
        yield from pages_of(array.slice(start, step), plan)


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


def _validity(array: pa.Array) -> Buffer:
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(buffer: pa.Buffer, start: int, count: int) -> Buffer:
    if start % 8 == 0:
        return buffer.slice(start // 8, -(-count // 8))
    bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[start : start + count]
    return np.packbits(bits, bitorder="little").data
