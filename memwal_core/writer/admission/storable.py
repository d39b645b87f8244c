"""Whether Lance can store rows, found out before anything is written.

Most types are laid out by this project (``format.lance_file``) and cannot fail. For the others Lance's own writer
decides, in part by the values: NULL structs fail in version 2.0 of its files, for example. A batch that failed only
when its WAL entry is written would be stored in some regions and lost in others.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import InvalidRequestError
from memwal_core.format.lance_file.encodings import is_plain
from memwal_core.format.lance_file.example import example
from memwal_core.native.casting import compact
from memwal_core.native.panics import panics_raised

_IN_MEMORY = "memory://trial.lance"


def require_storable(rows: pa.Table, version: str) -> None:
    """Refuse rows that Lance cannot write; they have been through ``compact``, and nothing is stored.

    Args:
        rows: In the MemTable schema.
        version: Of the Lance files that will hold them.

    Raises:
        InvalidRequestError: It cannot.
    """
    if not rows.num_rows or is_plain(rows.schema):
        return
    try:
        with panics_raised():
            _write(_IN_MEMORY, rows, version)
    except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
        raise _unstorable(version, str(error).partition(", /")[0]) from error


def _unstorable(version: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        "Lance cannot store the rows in files of this version; the whole batch was refused",
        remedy="change the values as the reason says, or make the table with a newer data storage version",
        version=version,
        reason=reason,
    )


@lru_cache(maxsize=64)
def unstorable_columns(schema: pa.Schema, version: str) -> tuple[tuple[str, str], ...]:
    """Return the columns whose type Lance cannot store and read again in files of a version, each with the reason."""
    found = []
    for field in schema:
        reason = None if is_plain(pa.schema([field])) else _trial(field, version)
        if reason is not None:
            found.append((field.name, reason))
    return tuple(found)


def _trial(field: pa.Field, version: str) -> str | None:
    values = example(field.type, 2)
    # A second column shows whether Lance gives the first one the right number of rows.
    columns = [pa.array([True, False]), values]
    rows = compact(pa.Table.from_arrays(columns, schema=pa.schema([pa.field("other", pa.bool_()), field])))
    with tempfile.TemporaryDirectory(prefix="memwal-trial-") as directory:
        path = str(Path(directory) / "trial.lance")
        try:
            with panics_raised():
                _write(path, rows, version)
                read = LanceFileReader(path).read_all().to_table()
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            return str(error).partition(", /")[0]
    return None if read.num_rows == rows.num_rows else "Lance reads another number of rows than were written"


def _write(path: str, rows: pa.Table, version: str) -> None:
    with LanceFileWriter(path, rows.schema, version=version) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
