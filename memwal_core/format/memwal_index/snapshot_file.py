"""The region snapshot as a Lance file in memory.

Lance ends the process where the pages of a file are not as it expects, so in ours the rows are once more, as an Arrow
stream, in a global buffer of their own, and nothing but that is read. Files of other programs have no such buffer:
Lance reads them in a process of its own, once for the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

import pyarrow as pa
import xxhash
from lance.file import LanceFileWriter

from memwal_core.errors import CorruptionError
from memwal_core.format.bounded import BoundedFile
from memwal_core.format.footer import PLACE, read_file_footer
from memwal_core.format.lance_file.whole import read_written
from memwal_core.format.malformed import MalformedError
from memwal_core.format.messages import parse
from memwal_core.format.pb import lance_file_pb2
from memwal_core.native.scratch import scratch_directory

ROWS_KEY = "memwal:rows"
"""Schema metadata: number of the global buffer with the rows, and the XXH3 (64 bits) of its bytes."""

_FILE_NAME = "index.lance"
_FOREIGN = "memwal_core.format.memwal_index.foreign_snapshot"
_FOREIGN_TIMEOUT_S = 120


def snapshot_to_bytes(snapshot: pa.Table) -> bytes:
    """Return the Lance file of a snapshot; one without rows keeps its schema."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, snapshot.schema) as stream:
        stream.write_table(snapshot)
    rows = sink.getvalue().to_pybytes()
    with scratch_directory("snapshot") as directory:
        path = directory / _FILE_NAME
        with LanceFileWriter(str(path), snapshot.schema) as writer:
            if snapshot.num_rows:
                writer.write_batch(snapshot.combine_chunks().to_batches()[0])
            number = writer.add_global_buffer(rows)
            writer.add_schema_metadata(ROWS_KEY, f"{number}:{xxhash.xxh3_64_hexdigest(rows)}")
        return read_written(path)


def snapshot_from_bytes(data: bytes) -> pa.Table:
    """Return the table that a Lance file holds, under the names in the file.

    ``CorruptionError``: the bytes are not a Lance file.
    """
    try:
        rows = _own_rows(data)
        table = _read_stream(rows if rows is not None else _foreign_rows(data))
    except (OSError, ValueError, MemoryError, pa.ArrowException, subprocess.SubprocessError) as error:
        raise CorruptionError(
            "a region snapshot cannot be read",
            remedy="read with consistency `latest`, which reads the region manifests instead",
            snapshot_bytes=len(data),
            problem=str(error)[:200],
        ) from error
    return table


def _own_rows(data: bytes) -> bytes | None:
    """Return the Arrow stream in a file; None if it has none.

    Raises:
        MalformedError: The file is no Lance file, or its stream is not the one that was written.
    """
    file = BoundedFile(len(data), lambda start, length: data[start : start + length], len(data))
    footer = read_file_footer(data, len(data))
    places = list(PLACE.iter_unpack(file.range(footer.buffer_places, footer.buffers * PLACE.size)))
    if not places:
        raise MalformedError("it does not describe its schema")
    schema = parse(lance_file_pb2.FileDescriptor(), file.range(*places[0])).schema
    stated = schema.metadata.get(ROWS_KEY, b"").decode()
    if not stated:
        return None
    number, _, digest = stated.partition(":")
    if not number.isascii() or not number.isdecimal() or len(number) > len(str(len(places))):
        raise MalformedError("its rows are in no buffer of it")
    if not 0 < int(number) < len(places):
        raise MalformedError(f"its rows are in buffer {number} of {len(places)}")
    rows = file.range(*places[int(number)])
    if xxhash.xxh3_64_hexdigest(rows) != digest:
        raise MalformedError("the checksum of its rows does not fit them")
    return rows


def _read_stream(rows: bytes) -> pa.Table:
    with pa.ipc.open_stream(rows) as reader:
        table = reader.read_all()
    table.validate(full=True)
    return table.replace_schema_metadata(None)


@lru_cache(maxsize=8)
def _foreign_rows(data: bytes) -> bytes:
    """Let a process of its own read the file with Lance."""
    ended = subprocess.run(  # noqa: S603 - this program
        [sys.executable, "-m", _FOREIGN], input=data, capture_output=True, timeout=_FOREIGN_TIMEOUT_S, check=False
    )
    if ended.returncode:
        said = ended.stderr.decode(errors="replace").strip().splitlines()
        raise MalformedError(f"Lance cannot read it: {said[-1] if said else f'it ended with {ended.returncode}'}")
    return ended.stdout
