"""Reading a small source in this process; whatever is larger, or of another kind, is Spark's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memwal_core.base_table import translated
from memwal_core.base_table.reading.read_sizes import rows_at_once
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.ingest.lance_source import open_lance
from memwal_core.ingest.source import (
    Source,
    hadoop_decides,
    is_pattern_of_hadoop,
    local_files,
    local_paths,
    require_plain_files,
)
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.native.casting import is_list, no_rows
from memwal_core.text import show_bytes

_PIECE_ROWS = 8192
_SPARKS_INSTANT = "INT96"
"""How Spark stores timestamps with a zone: to Arrow they have none, and those beyond its nanoseconds are others."""


class LeftToSparkError(Exception):
    """A source that is not read in this process; the text says why."""


def read_files(source: Source, limit_bytes: int) -> pa.Table:
    """Return all rows of a source.

    Parquet files that lack a column have NULL there; Spark takes the columns of one file for all.

    Args:
        source: Local Parquet files, or tables of Lance anywhere.
        limit_bytes: Of Arrow, and of the row groups of a file.

    Raises:
        LeftToSparkError: Another kind of source, or more bytes.
        InvalidRequestError: There is nothing at a place, it cannot be read, or it has an entry that is no plain file.
    """
    if source.options:
        raise LeftToSparkError("options of Spark's reader are given")
    if source.known_format is SourceFormat.LANCE:
        batches = _of_lance(source)
    elif source.known_format is SourceFormat.PARQUET:
        batches = _of_parquet(source, limit_bytes)
    else:
        raise LeftToSparkError(f"Spark reads {source.known_format.value}")
    pieces, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        pieces.append(batch)
    return _one_table(pieces, source)


def _of_parquet(source: Source, limit_bytes: int) -> Iterator[pa.Table]:
    for place in source.places:
        require_plain_files(place)
    files = [file for place in source.places for file in _files(place)]
    if sum(file.stat().st_size for file in files) > limit_bytes:
        raise _too_large(limit_bytes)
    for file in files:
        try:
            with pq.ParquetFile(file) as opened:
                groups = [opened.metadata.row_group(number) for number in range(opened.num_row_groups)]
                if sum(group.total_byte_size for group in groups) > limit_bytes:
                    raise _too_large(limit_bytes)
                columns = range(len(opened.schema))
                if any(opened.schema.column(number).physical_type == _SPARKS_INSTANT for number in columns):
                    raise LeftToSparkError("it has times in the form INT96, which are instants to Spark")
                yield no_rows(opened.schema_arrow)
                yield from map(_table, opened.iter_batches(_PIECE_ROWS))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(source, str(file), type(error).__name__) from None


def _files(place: str) -> list[Path]:
    """Return the files that Spark would read there.

    Raises:
        LeftToSparkError: The place is on another machine, divided by the values of a column, or a pattern that only
            Hadoop understands.
        InvalidRequestError: There is nothing.
    """
    if local_paths(place) is None:
        raise LeftToSparkError("the source is not on this machine")
    if hadoop_decides(place):
        raise LeftToSparkError("HADOOP_CONF_DIR is set, and says where paths without a scheme lead")
    if is_pattern_of_hadoop(place):
        raise LeftToSparkError("the source is a pattern with braces, a backslash or [^, which Hadoop reads its own way")
    found = [Path(file) for file in local_files(place) or ()]
    if any("=" in part for file in found for part in file.parent.parts):
        raise LeftToSparkError("the source is divided by the values of a column")
    return found


def _of_lance(source: Source) -> Iterator[pa.Table]:
    for place in source.places:
        require_plain_files(place)
        dataset = open_lance(place, source.storage_options)
        try:
            with translated("read a source", place):
                yield no_rows(dataset.schema)
                at_once = rows_at_once(dataset, dataset.schema.names, _PIECE_ROWS)
                yield from map(_table, dataset.to_batches(batch_size=at_once))
        except CorruptionError as error:
            raise _unreadable(source, place, str(error)) from None


def _is_rounded(found: pa.DataType, promoted: pa.DataType) -> bool:
    """Return whether decimals became floats, which Arrow does without a check; it refuses integers that do not fit."""
    if pa.types.is_struct(found) and pa.types.is_struct(promoted):
        return any(_is_rounded(field.type, promoted.field(field.name).type) for field in found)
    if is_list(found) and is_list(promoted):
        return _is_rounded(found.value_type, promoted.value_type)
    return bool(pa.types.is_decimal(found) and pa.types.is_floating(promoted))


def _do_not_go_together(source: Source) -> InvalidRequestError:
    return InvalidRequestError(
        "the files of the source have one column in types that do not go together",
        remedy="ingest them in batches of their own",
        source=str(source),
    )


def _one_table(pieces: Sequence[pa.Table], source: Source) -> pa.Table:
    twice = {name for piece in pieces for name, count in Counter(piece.column_names).items() if count > 1}
    if twice:
        raise InvalidRequestError(
            "a file of the source has several columns of one name",
            remedy="name each column once",
            source=str(source),
            columns=sorted(twice),
        )
    try:
        rows = pa.concat_tables(pieces, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise _do_not_go_together(source) from None
    found = {(field.name, str(field.type)): field for piece in pieces for field in piece.schema}
    if any(_is_rounded(field.type, rows.schema.field(field.name).type) for field in found.values()):
        raise _do_not_go_together(source)
    return rows


def _table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def _unreadable(source: Source, file: str, cause: str) -> InvalidRequestError:
    return InvalidRequestError(
        "a file of the source cannot be read",
        remedy="replace it by one that is whole, or take it out of the source; then run the batch again",
        source=str(source),
        format=source.known_format.value,
        file=file,
        cause=cause,
    )


def _too_large(limit_bytes: int) -> LeftToSparkError:
    return LeftToSparkError(f"it has more than ingest.in_process_bytes, which is {show_bytes(limit_bytes)}")
