"""Packing rows into a Lance file without a copy, as Lance's own writer would lay them out uncompressed.

For a small file Lance's writer takes several times as long as all the rest of a durable put: it opens an
object store, looks for encodings that save space, and copies every value. An entry of a WAL lives
only until its rows are merged, so its pages are written as they lie in memory, in version 2.0 of the
format, whose plain encodings are exactly Arrow's buffers (decision 0016).

Anything that is not known to be plain is left to Lance's own writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.format.checksum import Buffer
from memwal_core.format.footer import PLACE, FileFooter
from memwal_core.format.lance_file.encodings import COLUMN_ENCODING, ColumnPlan, column_plans, page_priority
from memwal_core.format.lance_file.pages import few_chunks, pages_of
from memwal_core.format.wire import nested, number, varint

PLAIN_VERSION = "2.0"
"""The version of the format whose encodings are written here; any Lance since 0.17 reads it."""

ALIGNMENT = 64
FOOTER_VERSION = (0, 3)
"""How a footer spells version 2.0."""
_ZEROS = bytes(ALIGNMENT)


@dataclass(frozen=True, slots=True)
class FileShape:
    """What all files of one schema have in common; made by ``file_shape``."""

    schema: pa.Schema
    message: bytes
    columns: tuple[ColumnPlan, ...]


def file_shape(schema: pa.Schema, message: bytes) -> FileShape:
    """Prepare the packing of rows.

    Args:
        schema: A schema for which ``is_plain`` holds.
        message: A ``FileDescriptor`` as an empty file of the same columns holds it, without metadata.
    """
    return FileShape(schema, message, column_plans(schema))


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
        for chunk in few_chunks(column):
            for count, encoding, buffers in pages_of(chunk, plan):
                offsets, sizes = b"", b""
                for buffer in buffers:
                    size = memoryview(buffer).nbytes
                    offsets += varint(end)
                    sizes += varint(size)
                    padding = -size % ALIGNMENT
                    parts += (buffer, _ZEROS[:padding]) if padding else (buffer,)
                    end += size + padding
                places = nested(1, offsets) + nested(2, sizes) if buffers else b""
                pages.append(nested(2, places + number(3, count) + encoding + page_priority(first_row)))
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
    tail += FileFooter(columns_start, column_places, buffer_places, 1, len(columns), *FOOTER_VERSION).pack()
    return bytes(tail)


def _descriptor(schema_message: bytes, metadata: Mapping[str, str], rows: int) -> bytes:
    """Return the ``FileDescriptor`` of a file: messages of protobuf that follow each other merge."""
    entries = b"".join(
        nested(5, nested(1, key.encode()) + nested(2, value.encode())) for key, value in metadata.items()
    )
    return schema_message + nested(1, entries) + number(2, rows)
