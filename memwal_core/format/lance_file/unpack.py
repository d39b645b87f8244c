"""Reading a Lance file that ``lance_file`` packed, from its bytes and without a copy.

For a small file Lance's reader takes several times as long as all the rest of a replayed entry: it
opens an object store, fetches each part of the file in a task and copies every value (decision 0016).
A file that was packed here is known to the byte, so its pages are taken as Arrow's buffers.

Everything is compared with what ``pack`` writes. A file that differs in any way, though it may be a
correct Lance file, is left to Lance's own reader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from memwal_core.format.footer import FILE_FOOTER_BYTES, PLACE, read_file_footer
from memwal_core.format.lance_file.buffers import Buffers
from memwal_core.format.lance_file.encodings import ColumnPlan, NotPlainError, column_plans, is_plain, require
from memwal_core.format.lance_file.pack import FOOTER_VERSION
from memwal_core.format.malformed import MalformedError
from memwal_core.format.wire import read_varint
from memwal_core.text import show_count

_SCHEMA, _ROWS = 0x0A, 0x10
"""Tags of protobuf: fields 1 and 2 of a ``FileDescriptor``."""
_ENTRY, _KEY, _VALUE = 0x2A, 0x0A, 0x12
"""Field 5 of a ``Schema``, and the two fields of an entry of a map."""
_LONG = 0x80
"""Lengths from here on take more than one byte."""
_ROWS_PER_BYTE = 8
"""At most: a key takes a bit. Columns that are all NULL take nothing, and would be made at any length."""


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """What is known of all files with one description of their schema; made by ``known_schema``.

    Attributes:
        schema: The schema, without metadata of its own.
    """

    schema: pa.Schema
    types: tuple[pa.DataType, ...]
    metadata: Mapping[bytes, bytes]
    columns: tuple[ColumnPlan, ...]


FindSchema = Callable[[bytes, int], KnownSchema | None]
"""Looks a schema up by the description of it in a file, and the number of columns there."""
ChooseSchema = Callable[[KnownSchema, Mapping[bytes, bytes]], pa.Schema]
"""Gives the schema of rows, equal to the one known but for metadata, from the metadata of their file."""


def known_schema(schema: pa.Schema) -> KnownSchema | None:
    """Prepare the reading of files of a schema; None if their columns are not plain."""
    if not is_plain(schema):
        return None
    return KnownSchema(schema.remove_metadata(), tuple(schema.types), dict(schema.metadata or {}), column_plans(schema))


def unpack(
    data: bytes, find_schema: FindSchema, choose: ChooseSchema | None = None
) -> tuple[pa.Table, dict[bytes, bytes]]:
    """Read a file that ``pack`` laid out.

    Args:
        data: The whole file, its checksum verified: values are not looked at, only where they lie.
        find_schema: Knows what the description of a schema means.
        choose: Gives the schema of the rows; that of the file, without metadata of its own, if None.

    Returns:
        The rows, which share memory with ``data``; and the metadata of the file's schema.

    Raises:
        NotPlainError: The file is not exactly what ``pack`` writes; let Lance read it.
        MalformedError: It states more rows than its bytes can hold. No reader may make room for them.
    """
    try:
        start, columns, (message, metadata, rows) = _tail(data)
        if rows <= _ROWS_PER_BYTE * len(data):
            known = find_schema(message, len(columns))
            if known is None or len(known.columns) != len(columns):
                raise NotPlainError
            buffers = Buffers(data)
            arrays = [
                buffers.column(column, plan, data_type, rows)
                for column, plan, data_type in zip(columns, known.columns, known.types, strict=True)
            ]
            require(buffers.end == start)
            stored = {**known.metadata, **metadata}
            schema = known.schema if choose is None else choose(known, stored)
            return pa.Table.from_arrays(arrays, schema=schema), stored
    except (IndexError, OverflowError, struct.error, ValueError) as error:  # pyarrow's errors are ValueErrors.
        raise NotPlainError from error
    raise MalformedError(f"{len(data)} bytes cannot hold {show_count(rows, 'row')}")


def _tail(data: bytes) -> tuple[int, list[bytes], tuple[bytes, dict[bytes, bytes], int]]:
    """Return where the pages end, the metadata of each column, and the parts of the ``FileDescriptor``."""
    columns_start, places, start_place, buffers, count, *version = read_file_footer(data, len(data))
    require(buffers == 1 and version == [*FOOTER_VERSION] and start_place + PLACE.size == len(data) - FILE_FOOTER_BYTES)
    require(places + count * PLACE.size == start_place)
    start, size = PLACE.unpack_from(data, start_place)
    require(start + size == columns_start)
    at = columns_start
    columns = []
    for place, length in PLACE.iter_unpack(data[places:start_place]):
        require(place == at)
        at += length
        columns.append(data[place:at])
    require(at == places)
    return start, columns, _descriptor(data[start:columns_start])


def _descriptor(data: bytes) -> tuple[bytes, dict[bytes, bytes], int]:
    """Return the description of the schema, the metadata and the number of rows of a ``FileDescriptor``."""
    require(data[0] == _SCHEMA)
    size, at = read_varint(data, 1)
    at += size
    message = data[:at]
    require(data[at] == _SCHEMA)
    size, at = read_varint(data, at + 1)
    end = at + size
    metadata = {}
    while at < end:
        require(data[at] == _ENTRY)
        size = data[at + 1]
        if size >= _LONG:
            size, at = read_varint(data, at + 1)
            key, middle = _text(data, at, _KEY)
            value, last = _text(data, middle, _VALUE)
        else:  # So are nearly all, and then every length is one byte.
            at += 2
            middle = at + 2 + data[at + 1]
            last = middle + 2 + data[middle + 1]
            require(data[at] == _KEY and data[middle] == _VALUE)
            key, value = data[at + 2 : middle], data[middle + 2 : last]
        at += size
        require(last == at)
        metadata[key] = value
    require(at == end and data[at] == _ROWS)
    rows, at = read_varint(data, at + 1)
    require(at == len(data))
    return message, metadata, rows


def _text(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    require(data[at] == tag)
    size, at = read_varint(data, at + 1)
    return data[at : at + size], at + size
