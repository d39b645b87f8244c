"""Spark DataFrames of Lance rows: executors scan, and no row passes through the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import lance
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from memwal_core.base_table import translated
from memwal_core.base_table.reading.fragments import fragments_of
from memwal_core.base_table.reading.read_sizes import rows_at_once
from memwal_core.errors import InvalidRequestError
from memwal_core.flushed.read import ColumnMapping, MergeTarget, SchemaMismatch, map_columns, open_generation
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.native.casting import IN_PLACE_OF_UNSIGNED, cast
from memwal_core.quality.checks.audit import AuditTask

REGION_COLUMN = "_region_id"
GENERATION_COLUMN = "_generation"
_BATCH_ROWS = 8192
_MOST_DIGITS = 38
"""Of Spark's decimals."""
_NANOSECONDS = pa.timestamp("ns")


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some fragments of a version of the base table."""

    uri: str
    version: int
    fragments: frozenset[int]


def base_frame(
    spark: SparkSession, dataset: lance.LanceDataset, columns: Sequence[str], storage_options: Mapping[str, str]
) -> DataFrame:
    """Return columns of a table version, one task per group of fragments; Spark must have a type for each.

    A value that Spark cannot represent ends it with ``InvalidRequestError``.
    """
    fragments = list(dataset.fragment_ids())
    tasks = max(1, min(len(fragments), spark.sparkContext.defaultParallelism * 4))
    # Neighbours go together: of rows that are ingested, the last one of a key wins.
    bounds = [len(fragments) * number // tasks for number in range(tasks + 1)]
    groups = [frozenset(fragments[start:end]) for start, end in pairwise(bounds)]
    slices = [_Slice(dataset.uri, dataset.version, group) for group in groups]
    types = spark_types(pa.schema([dataset.schema.field(name) for name in columns]))
    return _frame(spark, slices, types, _read_slice(to_arrow_schema(types, timezone="UTC"), dict(storage_options)))


def generation_frame(
    spark: SparkSession, tasks: Sequence[AuditTask], target: MergeTarget, storage_options: Mapping[str, str]
) -> DataFrame:
    """Return the rows of flushed MemTables in the base table's columns, without deletes.

    Columns that a flushed MemTable lacks are NULL, columns without a Spark type are left out, timestamps have the
    microsecond that they are in, and ``_region_id`` and ``_generation`` say where a row is from.
    """
    types = spark_types(target.schema)
    types.add(StructField(REGION_COLUMN, StringType())).add(StructField(GENERATION_COLUMN, LongType()))
    wanted = to_arrow_schema(types, timezone="UTC")
    return _frame(spark, list(tasks), types, _read_generation(wanted, target, dict(storage_options)))


def spark_types(schema: pa.Schema) -> StructType:
    """Return the Spark columns of an Arrow schema, all nullable; types that Spark lacks are left out."""
    types = {field.name: spark_type(IN_PLACE_OF_UNSIGNED.get(field.type, field.type)) for field in schema}
    return StructType([StructField(name, kind, True) for name, kind in types.items() if kind is not None])


def spark_type(kind: pa.DataType) -> DataType | None:
    """Return Spark's type for values of an Arrow type; None if it has none."""
    if _has_too_many_digits(kind):  # pyspark names a type even so, which Spark does not know.
        return None
    try:
        return from_arrow_type(kind)
    except (PySparkTypeError, KeyError):
        return None


def _has_too_many_digits(kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision > _MOST_DIGITS)
    return any(_has_too_many_digits(kind.field(number).type) for number in range(kind.num_fields))


def cast_to_spark(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column in the Arrow type that Spark expects.

    Raises:
        InvalidRequestError: Spark cannot represent a value, for example a timestamp with nanoseconds.
    """
    try:
        return cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            "Spark cannot represent a value",
            remedy="leave the column out, or correct the value",
            column=field.name,
            type=str(column.type),
            wanted=str(field.type),
            reason=str(error),
        ) from error


def _frame(
    spark: SparkSession,
    tasks: Sequence[object],
    types: StructType,
    read: Callable[[object], Iterator[pa.RecordBatch]],
) -> DataFrame:
    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from read(tasks[number])

    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(partition, types)


def _read_slice(schema: pa.Schema, storage_options: dict[str, str]) -> Callable[[object], Iterator[pa.RecordBatch]]:
    def read(task: object) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, _Slice)  # noqa: S101 - narrows the type of our own tasks
        if not task.fragments:
            return
        with translated("read the base table", task.uri, version=task.version):
            dataset = lance.dataset(task.uri, version=task.version, storage_options=storage_options or None)
            fragments = fragments_of(dataset, sorted(task.fragments))
            at_once = rows_at_once(dataset, schema.names, _BATCH_ROWS)
            scanner = dataset.scanner(columns=schema.names, fragments=fragments, batch_size=at_once)
            for batch in scanner.to_batches():
                yield pa.RecordBatch.from_arrays(
                    [cast_to_spark(batch.column(field.name), field) for field in schema], schema=schema
                )

    return read


def _read_generation(
    schema: pa.Schema, target: MergeTarget, storage_options: dict[str, str]
) -> Callable[[object], Iterator[pa.RecordBatch]]:
    def read(task: object) -> Iterator[pa.RecordBatch]:
        assert isinstance(task, AuditTask)  # noqa: S101 - narrows the type of our own tasks
        dataset = open_generation(task.uri, storage_options)
        mapping = map_columns(target, dataset.lance_schema.fields(), dataset.schema)
        if isinstance(mapping, SchemaMismatch):
            return
        sources = {name: mapping.sources[name] for name in schema.names if name in mapping.sources}
        marks = [TOMBSTONE_COLUMN] if mapping.has_tombstones else []
        with translated("read a flushed MemTable", task.uri):
            columns = [*sources.values(), *marks]
            scanner = dataset.scanner(columns=columns, batch_size=rows_at_once(dataset, columns, _BATCH_ROWS))
            for batch in scanner.to_batches():
                kept = batch
                if marks:
                    kept = batch.filter(pc.invert(pc.fill_null(batch.column(TOMBSTONE_COLUMN), False)))
                yield _as_row_batch(kept, schema, mapping, task)

    return read


def _as_row_batch(batch: pa.RecordBatch, schema: pa.Schema, mapping: ColumnMapping, task: AuditTask) -> pa.RecordBatch:
    origin = {REGION_COLUMN: str(task.region_id), GENERATION_COLUMN: task.generation}
    arrays = []
    for field in schema:
        if field.name in mapping.sources:
            found = mapping.reshape(field.name, batch.column(mapping.sources[field.name]))
            if pa.types.is_timestamp(found.type) and found.type.unit == "ns":
                found = pc.floor_temporal(found.view(_NANOSECONDS), unit="microsecond").view(found.type)
            arrays.append(cast_to_spark(found, field))
        elif field.name in origin:
            arrays.append(pa.repeat(pa.scalar(origin[field.name], field.type), batch.num_rows))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
