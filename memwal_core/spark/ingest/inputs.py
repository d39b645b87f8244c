"""Reading what is to be ingested: files, tables of the session's catalog, other Lance tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import lance
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.ingest.source import Source, require_plain_files
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.quality.frames import base_frame, spark_types
from memwal_core.spark.ingest.routed import CORRUPT
from memwal_core.spark.ingest.watching import cause_of, unreadable_file

_TEXTS = frozenset({SourceFormat.CSV, SourceFormat.JSON})


def read_source(
    spark: SparkSession, source: Source, schema: pa.Schema, steering: Collection[str | None] = ()
) -> DataFrame:
    """Return the rows of a source.

    Text files are read in the schema of the table; records that do not fit it come with their text in
    ``memwal:corrupt``. Errors say nothing that the source says: a registered directory may have any text in it.

    Args:
        spark: The session.
        source: What to read.
        schema: Of the table.
        steering: Columns beside those of the table, which tell order and deletes.

    Raises:
        InvalidRequestError: There is nothing at a place, Spark cannot read it, a text has other columns, or an entry of
            a local place is neither file nor directory, or a link that leaves the place.
    """
    if source.known_format is not SourceFormat.TABLE:
        for place in source.places:
            require_plain_files(place)
    frame = _read(spark, source, schema)
    strangers = [name for name in frame.columns if name not in (CORRUPT, *schema.names, *steering)]
    if strangers and source.known_format in _TEXTS:
        raise InvalidRequestError(
            "the source has columns that the table does not have",
            remedy="compare its names of columns, for CSV its first line, with those of the table",
            source=str(source),
            unknown_columns=len(strangers),
            missing=[name for name in schema.names if name not in frame.columns],
            expected=schema.names,
        )
    return frame


def _read(spark: SparkSession, source: Source, schema: pa.Schema) -> DataFrame:
    try:
        match source.known_format:
            case SourceFormat.LANCE:
                return _lance(spark, source)
            case SourceFormat.TABLE:
                return _union([spark.table(name) for name in source.places])
            case SourceFormat.PARQUET:
                return spark.read.options(**source.options).parquet(*source.places)
            case SourceFormat.CSV:
                options = {"header": "true", **source.options}
                names = spark.read.options(**options).csv(list(source.places)).columns
                if not set(names) <= set(schema.names):
                    # The table has no type for columns that only steer (order, deletes): infer it.
                    options_to_look = {**options, "inferSchema": "true"}
                    found = spark.read.options(**options_to_look).csv(list(source.places)).schema.fields
                else:
                    found = [StructField(name, StringType()) for name in names]
                types = _text_types([(each.name, each) for each in found], schema)
                return _tolerant(spark, {**options, "enforceSchema": "false"}, types).csv(list(source.places))
            case SourceFormat.JSON:
                keep = {"columnNameOfCorruptRecord": CORRUPT}
                found = spark.read.options(**{**source.options, **keep}).json(list(source.places)).schema.fields
                strangers = [(each.name, each) for each in found if each.name not in (CORRUPT, *schema.names)]
                known = [(name, StructField(name, StringType())) for name in schema.names]
                types = _text_types([*known, *strangers], schema)
                return _tolerant(spark, source.options, types).json(list(source.places))
    except (PySparkException, Py4JError) as error:
        raise InvalidRequestError(
            "the source cannot be read",
            remedy="correct its path, its format or the options of the reader",
            source=str(source),
            format=source.known_format.value,
            file=unreadable_file(error) or "",
            cause=cause_of(error),
        ) from None


def _text_types(fields: Sequence[tuple[str, StructField]], schema: pa.Schema) -> StructType:
    """Return the types in which text is read: the table's where it has the column."""
    of_table = {each.name: each for each in spark_types(schema).fields}
    return StructType([of_table.get(name, other) for name, other in fields] + [StructField(CORRUPT, StringType())])


def _tolerant(spark: SparkSession, options: Mapping[str, str], types: StructType) -> DataFrameReader:
    keep = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return spark.read.options(**{**options, **keep}).schema(types)


def _lance(spark: SparkSession, source: Source) -> DataFrame:
    options = dict(source.storage_options)
    frames = []
    for place in source.places:
        try:
            with translated("read a source", place):
                dataset = lance.dataset(place, storage_options=options or None)
        except CorruptionError as error:
            raise InvalidRequestError(
                "the source is damaged",
                remedy="replace it by one that is whole, or take it out of the batch",
                source=place,
                cause=str(error),
            ) from None
        names = [field.name for field in spark_types(dataset.schema).fields]
        frames.append(base_frame(spark, dataset, names, options))
    return _union(frames)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first
