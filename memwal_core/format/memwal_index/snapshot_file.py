"""The region snapshot as a Lance file in memory.

Lance's file reader and writer take paths, so both directions pass through a directory that
exists only for the call.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import CorruptionError
from memwal_core.format.footer import read_file_footer
from memwal_core.native.panics import panics_raised

_FILE_NAME = "index.lance"


def snapshot_to_bytes(snapshot: pa.Table) -> bytes:
    """Return the Lance file of a snapshot; one without rows keeps its schema."""
    with tempfile.TemporaryDirectory(prefix="memwal-snapshot-") as directory:
        path = Path(directory) / _FILE_NAME
        with LanceFileWriter(str(path), snapshot.schema) as writer:
            if snapshot.num_rows:
                writer.write_batch(snapshot.combine_chunks().to_batches()[0])
        return path.read_bytes()


def snapshot_from_bytes(data: bytes) -> pa.Table:
    """Return the table that a Lance file holds, under the names in the file.

    ``CorruptionError``: the bytes are not a Lance file.
    """
    with tempfile.TemporaryDirectory(prefix="memwal-snapshot-") as directory:
        path = Path(directory) / _FILE_NAME
        path.write_bytes(data)
        try:
            read_file_footer(data, len(data))
            with panics_raised():
                reader = LanceFileReader(str(path))
                _ = reader.metadata().schema  # Ends in an error where the first batch would end the process.
                return reader.read_all().to_table()
        except (OSError, ValueError, RuntimeError) as error:
            raise CorruptionError(
                "a region snapshot cannot be read",
                remedy="read with consistency `latest`, which reads the region manifests instead",
                snapshot_bytes=len(data),
            ) from error
