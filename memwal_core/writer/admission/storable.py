"""Whether Lance can store rows, found out before anything is written.

Most types are laid out by this project (``format.lance_file``) and cannot fail. For the others Lance's own writer
decides, in part by the values: NULL structs fail in version 2.0 of its files, for example. A batch that failed only
when its WAL entry is written would be stored in some regions and lost in others.
"""

from __future__ import annotations

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.format.lance_file.encodings import is_plain
from memwal_core.format.lance_file.example import example
from memwal_core.native.casting import cast, compact_rows, unwrapped
from memwal_core.native.panics import panics_raised
from memwal_core.native.python_values import python_values
from memwal_core.native.scratch import scratch_directory
from memwal_core.native.system_errors import MAKE_ROOM, is_of_system
from memwal_core.native.type_cache import type_cache
from memwal_core.storage.limits import MAX_ENTRY_ROWS_BYTES

_IN_MEMORY = "memory://trial.lance"
_REFUSALS = (OSError, ValueError, RuntimeError, pa.ArrowException)


def require_storable(rows: pa.Table, version: str) -> None:
    """Refuse rows that Lance cannot write; they have been through ``compact_rows``, and nothing is stored.

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
    except _REFUSALS as error:
        raise _unstorable(version, _reason(error)) from error


def require_fits_entry(rows: pa.Table) -> None:
    """Refuse rows whose WAL entry no writer and no reader would fetch again (``InvalidRequestError``)."""
    if rows.nbytes > MAX_ENTRY_ROWS_BYTES:
        raise InvalidRequestError(
            "the rows of one region are larger than one WAL entry may be; the whole batch was refused",
            remedy="put the rows in several smaller batches",
            rows=rows.num_rows,
            size_bytes=rows.nbytes,
            max_bytes=MAX_ENTRY_ROWS_BYTES,
        )


def _reason(error: Exception) -> str:
    if is_of_system(error):
        raise UnavailableError(
            "Lance could not be asked here whether it can store the rows; nothing was written",
            remedy=MAKE_ROOM,
            reason=str(error),
        ) from error
    return str(error).partition(", /")[0]


def _unstorable(version: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        "Lance cannot store the rows in files of this version; the whole batch was refused",
        remedy="change the values as the reason says, or make the table with a newer data storage version",
        version=version,
        reason=reason,
    )


@type_cache(64)
def unstorable_columns(schema: pa.Schema, version: str) -> tuple[tuple[str, str], ...]:
    """Return the columns whose type Lance cannot store and read again in files of a version, each with the reason."""
    found = []
    for field in schema:
        reason = None if is_plain(pa.schema([field])) else _trial(field, version)
        if reason is not None:
            found.append((field.name, reason))
    return tuple(found)


def _trial(field: pa.Field, version: str) -> str | None:
    try:
        values = example(field.type, 2)
    except pa.ArrowNotImplementedError:
        return "pyarrow cannot make values of an extension type inside of others"
    reason = _read_again(field, values, version)
    if reason is None:
        # A batch whose NULLs Lance refuses to write is refused by itself.
        reason = _read_again(field, pa.nulls(2, field.type), version, may_refuse=True)
    return reason


def _read_again(field: pa.Field, values: pa.Array, version: str, *, may_refuse: bool = False) -> str | None:
    """Write and read values; return what went wrong, None if nothing did, or if Lance may refuse them and does."""
    # A second column shows whether Lance gives the first one the right number of rows.
    columns = [pa.array([True, False]), values]
    rows = compact_rows(pa.Table.from_arrays(columns, schema=pa.schema([pa.field("other", pa.bool_()), field])))
    with scratch_directory("trial") as directory:
        path = str(directory / "trial.lance")
        try:
            with panics_raised():
                _write(path, rows, version)
        except _REFUSALS as error:
            return None if may_refuse else _reason(error)
        try:
            with panics_raised():
                read = LanceFileReader(path).read_all().to_table()
        except _REFUSALS as error:
            return _reason(error)
    return _difference(rows, read)


def _difference(rows: pa.Table, read: pa.Table) -> str | None:
    if read.num_rows != rows.num_rows:
        return "Lance reads another number of rows than were written"
    written, found = rows.column(1), read.column(1)
    if isinstance(written.type, pa.JsonType):
        return None  # Stored in a form of its own, see ``wal.lance_codec``.
    # Not the types: Lance reads views as plain text, and extension types may have Python values of their own.
    stored = [python_values(cast(column, unwrapped(column.type))) for column in (found, written)]
    return None if stored[0] == stored[1] else "Lance reads other values than were written"


def _write(path: str, rows: pa.Table, version: str) -> None:
    with LanceFileWriter(path, rows.schema, version=version) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
