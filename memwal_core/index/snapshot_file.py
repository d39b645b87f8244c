"""The region snapshot as a Lance file: in memory for the inline form, on disk in between.

Lance's file reader and writer take paths, so both directions pass through a directory that
exists only for the call.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import CorruptionError

_FILE_NAME = "index.lance"
_FOOTER_BYTES = 40


def snapshot_to_bytes(snapshot: pa.Table) -> bytes:
    """Return the Lance file of a snapshot; one of no rows keeps its schema."""
    with tempfile.TemporaryDirectory(prefix="memwal-snapshot-") as directory:
        path = Path(directory) / _FILE_NAME
        with LanceFileWriter(str(path), snapshot.schema) as writer:
            if snapshot.num_rows:
                writer.write_batch(snapshot.combine_chunks().to_batches()[0])
        return path.read_bytes()


def snapshot_from_bytes(data: bytes) -> pa.Table:
    """Return the table that a Lance file holds, under the names in the file.

    Raises:
        CorruptionError: The bytes are no Lance file; the snapshot must be built anew.
    """
    with tempfile.TemporaryDirectory(prefix="memwal-snapshot-") as directory:
        path = Path(directory) / _FILE_NAME
        path.write_bytes(data)
        try:
            return _read(path)
        except (OSError, ValueError, RuntimeError) as error:
            raise CorruptionError(
                "a region snapshot cannot be read",
                remedy="build the snapshot anew; readers can use the region manifests meanwhile",
                snapshot_bytes=len(data),
            ) from error


def _read(path: Path) -> pa.Table:
    if path.stat().st_size < _FOOTER_BYTES:  # Lance's reader panics instead of raising
        raise ValueError("shorter than the footer of a Lance file")
    return LanceFileReader(str(path)).read_all().to_table()
