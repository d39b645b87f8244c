"""What Lance says about schemas: how its files describe them, and what such a description means."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.format.checksum import ChecksumError
from memwal_core.format.footer import PLACE, read_file_footer
from memwal_core.format.lance_file.encodings import NotPlainError, is_plain
from memwal_core.format.lance_file.pack import PLAIN_VERSION, FileShape, empty_file, file_shape, pack
from memwal_core.format.lance_file.unpack import KnownSchema, known_schema
from memwal_core.format.lance_file.whole import read_written
from memwal_core.format.malformed import MalformedError
from memwal_core.format.paths import LANCE_WAL_SUFFIX
from memwal_core.native.panics import panics_raised
from memwal_core.native.scratch import scratch_directory
from memwal_core.native.system_errors import is_of_system
from memwal_core.native.type_cache import type_cache


def schema_range(data: bytes) -> tuple[int, int]:
    """Return where a Lance file keeps its schema: its first global buffer.

    Raises:
        ChecksumError: The footer cannot be that of a Lance file.
    """
    try:
        footer = read_file_footer(data, len(data))
    except MalformedError as error:
        raise ChecksumError("the footer is damaged") from error
    if not footer.buffers:
        raise ChecksumError("the footer is damaged")
    start, size = PLACE.unpack_from(data, footer.buffer_places)
    return start, start + size


@type_cache(64)
def plain_shape(schema: pa.Schema) -> FileShape | None:
    """Return what files of a schema have in common; None if they cannot be packed."""
    if not is_plain(schema):
        return None
    with scratch_directory("schema") as scratch:
        path = scratch / f"schema{LANCE_WAL_SUFFIX}"
        with LanceFileWriter(str(path), schema, version=PLAIN_VERSION):
            pass  # No rows: Lance's description of the schema is all that is wanted.
        data = read_written(path)
    start, end = schema_range(data)
    return file_shape(schema, data[start:end])


def plain_file(rows: pa.Table, metadata: Mapping[str, str]) -> bytes:
    """Return a Lance file of rows of plain types.

    Args:
        rows: At least one.
        metadata: Metadata of the schema.

    Raises:
        NotPlainError: A type or a value needs more than a plain encoding.
    """
    shape = plain_shape(rows.schema)
    if shape is None:
        raise NotPlainError
    return b"".join(pack(rows, shape, metadata))


@lru_cache(maxsize=64)
def described_schema(message: bytes, columns: int) -> KnownSchema | None:
    """Let Lance decode a description of a schema; None if it cannot, or if the schema is not plain."""
    with scratch_directory("schema") as scratch:
        path = scratch / f"schema{LANCE_WAL_SUFFIX}"
        path.write_bytes(empty_file(message, columns))
        try:
            with panics_raised():
                return known_schema(LanceFileReader(str(path)).metadata().schema)
        except (OSError, RuntimeError, ValueError) as error:
            if is_of_system(error):
                raise
            return None  # Lance reports what is wrong when it reads the file.
