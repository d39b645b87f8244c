"""The first stage of an ingestion: executors check all rows and determine their regions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from memwal_core.ingest.admission import Examined, RowAdmission, RowProblem
from memwal_core.key_filter import hashes_of
from memwal_core.memtable.schema import TOMBSTONE_COLUMN
from memwal_core.writer.admission.row_checks import SAMPLE_ROWS

REGION = "__region"
SEQUENCE = "__sequence"
ORDER = "__order"
PROBLEM = "__problem"
BAD_ROWS = "__bad_rows"
KEY_HASH = "__key_hash"
CORRUPT = "__corrupt"
"""Column of a batch with the text of records that its reader could not parse."""
INTERNAL = frozenset({REGION, SEQUENCE, ORDER, PROBLEM, BAD_ROWS, CORRUPT, KEY_HASH})
"""Columns of routed rows that the table does not have."""

_PARTITION_BITS = 40


def routed(frame: DataFrame, admission: RowAdmission, order_by: str | None) -> DataFrame:
    """Return the rows of a batch with their regions, or what is wrong with them.

    The rows come as they are, with ``__region`` and, in ``__sequence``, their place in the batch; pieces with
    bad rows are one row with ``__problem`` instead. ``order_by`` is left out if the table does not have it.
    """
    fields = [field for field in frame.schema.fields if field.name in admission.schema.names]
    extra = [StructField(TOMBSTONE_COLUMN, BooleanType()), StructField(SEQUENCE, LongType())]
    if order_by is not None:
        extra.append(StructField(ORDER, frame.schema[order_by].dataType))
    marks = [
        StructField(REGION, StringType()),
        StructField(KEY_HASH, LongType()),
        StructField(PROBLEM, StringType()),
        StructField(BAD_ROWS, LongType()),
    ]
    columns = [*(StructField(field.name, field.dataType) for field in fields), *extra, *marks]
    return frame.mapInArrow(_route(admission, order_by), StructType(columns))


def columns_of_batch(frame: DataFrame, admission: RowAdmission, order_by: str | None) -> list[str]:
    """Return the columns that belong to the rows: without those that only tell the order or what is corrupt."""
    return [name for name in frame.columns if name != CORRUPT and (name != order_by or name in admission.schema.names)]


def _route(
    admission: RowAdmission, order_by: str | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        first = (context.partitionId() if context is not None else 0) << _PARTITION_BITS
        for batch in batches:
            rows, corrupt = _without_corrupt(pa.Table.from_batches([batch]))
            along = pa.table({SEQUENCE: np.arange(first, first + rows.num_rows)})
            first += rows.num_rows
            if order_by is not None:
                along = along.append_column(ORDER, rows.column(order_by))
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
        names = [*values.schema.names, TOMBSTONE_COLUMN, *along.schema.names, REGION, KEY_HASH, PROBLEM, BAD_ROWS]
        marks = [
            pa.nulls(1, pa.string()),
            pa.nulls(1, pa.int64()),
            pa.array([json.dumps(asdict(problem))]),
            pa.array([problem.rows]),
        ]
        yield pa.RecordBatch.from_arrays([*nothing, *marks], names=names)
    for value, part in examined.parts:
        count = part.num_rows
        marked = (
            part.append_column(REGION, pa.repeat(pa.scalar(value), count))
            .append_column(KEY_HASH, pa.array(hashes_of(part, admission.key).view(np.int64)))
            .append_column(PROBLEM, pa.nulls(count, pa.string()))
            .append_column(BAD_ROWS, pa.repeat(pa.scalar(0, pa.int64()), count))
        )
        yield from marked.combine_chunks().to_batches()
