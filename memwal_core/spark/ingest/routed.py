"""The first stage of an ingestion: executors check all rows and determine their regions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from memwal_core.errors import InvalidRequestError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ingest.admission import Examined, RowAdmission, RowProblem
from memwal_core.key_filter import hashes_of
from memwal_core.writer.admission.row_checks import SAMPLE_ROWS

REGION = "__region"
SEQUENCE = "__sequence"
ORDER = "__order"
PLACE = "__place"
PROBLEM = "__problem"
BAD_ROWS = "__bad_rows"
KEY_HASH = "__key_hash"
CORRUPT = "memwal:corrupt"
"""Column of a batch with the text of records that its reader could not parse."""
FILE = "memwal:file"
"""Column of a batch with the number of the file that a row is from, where there are several."""
_MARKS = (REGION, KEY_HASH, PROBLEM, BAD_ROWS)
INTERNAL = frozenset({REGION, SEQUENCE, ORDER, PROBLEM, BAD_ROWS, KEY_HASH, PLACE})
"""Columns of routed rows that the table does not have."""

_ALIAS = "column"
_ALONG = "memwal:along:"
"""Begins the names that marks have beside columns of the table; users give columns shorter ones, also ``__order``."""
_PARTITION_BITS = 40
_TIMES = "spark.sql.timeType.enabled"
"""Without it, Spark counts no rows that have times of day."""


def routed(frame: DataFrame, admission: RowAdmission, order_by: str | None) -> DataFrame:
    """Return the rows of a batch with their regions, or what is wrong with them.

    The rows come as they are, with columns named by ``aliases``, with ``__region`` and, in ``__sequence``, their place
    in the batch; pieces with bad rows are one row with ``__problem`` instead. ``order_by`` is left out if the table
    does not have it.
    """
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    names = [name for name in frame.columns if name in admission.schema.names]
    extra = [StructField(TOMBSTONE_COLUMN, BooleanType()), StructField(SEQUENCE, LongType())]
    if FILE in kinds:
        extra.append(StructField(PLACE, LongType()))
    if order_by is not None:
        extra.append(StructField(ORDER, kinds[order_by]))
    marks = [
        StructField(REGION, StringType()),
        StructField(KEY_HASH, LongType()),
        StructField(PROBLEM, StringType()),
        StructField(BAD_ROWS, LongType()),
    ]
    known = aliases(admission.schema.names)
    columns = [*(StructField(known[name], kinds[name]) for name in names), *extra, *marks]
    numbered = frame.toDF(*(f"{_ALIAS}{number}" for number in range(len(frame.columns))))
    return numbered.mapInArrow(_route(admission, order_by, frame.columns), StructType(columns))


def aliases(columns: Sequence[str]) -> dict[str, str]:
    """Return what the columns of the table are called in routed rows.

    To Spark, names that differ in case only are one, and users may give columns the names of the marks.
    """
    return {name: f"{_ALIAS}{number}" for number, name in enumerate(columns)}


def without_aliases(rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Return rows under the names of the table's columns."""
    names = {short: name for name, short in aliases(columns).items()}
    return rows.rename_columns([names.get(name, name) for name in rows.schema.names])


def columns_of_batch(frame: DataFrame, admission: RowAdmission, order_by: str | None) -> pa.Schema:
    """Return the columns that belong to the rows: without those that only tell the order or what is corrupt.

    Raises:
        InvalidRequestError: Spark does not hand on values of a type.
    """
    own = [
        field
        for field in frame.schema.fields
        if field.name not in (CORRUPT, FILE) and (field.name != order_by or field.name in admission.schema.names)
    ]
    found: list[pa.Field] = []
    takes_times = frame.sparkSession.conf.get(_TIMES, "false") == "true"
    for field in own:
        try:
            # Timestamps with a zone fit whichever zone it is.
            columns = list(to_arrow_schema(StructType([field]), timezone="UTC"))
        except PySparkTypeError:
            columns = []
        if not columns or (not takes_times and _has_time(columns[0].type)):
            raise InvalidRequestError(
                "Spark does not hand on values of this type; the whole batch was refused",
                remedy=f"cast the column before writing; for times of day, set {_TIMES} to true for the application",
                column=field.name,
                type=field.dataType.simpleString(),
            )
        found += columns
    return pa.schema(found)


def _has_time(kind: pa.DataType) -> bool:
    """Tell whether there are times of day in values."""
    if pa.types.is_time(kind):
        return True
    return any(_has_time(kind.field(number).type) for number in range(kind.num_fields))


def _route(
    admission: RowAdmission, order_by: str | None, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        first = (context.partitionId() if context is not None else 0) << _PARTITION_BITS
        for batch in batches:
            rows, corrupt = _without_corrupt(pa.Table.from_batches([batch]).rename_columns(list(names)))
            along = pa.table({f"{_ALONG}{SEQUENCE}": np.arange(first, first + rows.num_rows)})
            first += rows.num_rows
            if FILE in rows.schema.names:
                along = along.append_column(f"{_ALONG}{PLACE}", rows.column(FILE))
                rows = rows.drop_columns([FILE])
            if order_by is not None:
                along = along.append_column(f"{_ALONG}{ORDER}", rows.column(order_by))
                if order_by not in admission.schema.names:
                    rows = rows.drop_columns([order_by])
            examined = corrupt if corrupt is not None else admission.examine(rows, along)
            yield from _marked(examined, rows, along, admission)

    return route


def _without_corrupt(rows: pa.Table) -> tuple[pa.Table, Examined | None]:
    position = rows.schema.get_field_index(CORRUPT)
    if position < 0:
        return rows, None
    texts, kept = pc.drop_null(rows.column(position)), rows.remove_column(position)
    if not len(texts):
        return kept, None
    # Not the text: what is no row of the table may be anything, and errors travel far.
    lengths = pc.utf8_length(texts.slice(0, SAMPLE_ROWS)).to_pylist()
    samples = tuple({"record": f"{length} characters"} for length in lengths)
    return kept, Examined((), RowProblem("a record cannot be read as a row of the table", "", len(texts), samples))


def _marked(examined: Examined, rows: pa.Table, along: pa.Table, admission: RowAdmission) -> Iterator[pa.RecordBatch]:
    delete_column = admission.delete_column
    if examined.problem is not None:
        problem = examined.problem
        values = rows.drop_columns([delete_column]) if delete_column is not None else rows
        nothing = [pa.nulls(1, field.type) for field in (*values.schema, pa.field("", pa.bool_()), *along.schema)]
        names = [*_routed_names([*values.schema.names, TOMBSTONE_COLUMN, *along.schema.names], admission), *_MARKS]
        marks = [
            pa.nulls(1, pa.string()),
            pa.nulls(1, pa.int64()),
            pa.array([json.dumps(asdict(problem))]),
            pa.array([problem.rows]),
        ]
        yield pa.RecordBatch.from_arrays([*nothing, *marks], names=names)
    for value, part in examined.parts:
        count, hashes = part.num_rows, hashes_of(admission.keys_of(part), admission.key)
        marked = (
            part.rename_columns(_routed_names(part.schema.names, admission))
            .append_column(REGION, pa.repeat(pa.scalar(value), count))
            .append_column(KEY_HASH, pa.array(hashes.view(np.int64)))
            .append_column(PROBLEM, pa.nulls(count, pa.string()))
            .append_column(BAD_ROWS, pa.repeat(pa.scalar(0, pa.int64()), count))
        )
        yield from marked.combine_chunks().to_batches()


def _routed_names(names: Sequence[str], admission: RowAdmission) -> list[str]:
    known = aliases(admission.schema.names)
    return [known.get(name) or name.removeprefix(_ALONG) for name in names]
