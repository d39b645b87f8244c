"""Reading what is to be ingested: files, tables of the session's catalog, other Lance tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from memwal_core.errors import InvalidRequestError
from memwal_core.ingest.lance_source import open_lance
from memwal_core.ingest.source import (
    Source,
    is_hidden,
    local_files,
    paths_for_hadoop,
    require_plain_files,
    without_file_scheme,
)
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.quality.frames import base_frame, spark_types
from memwal_core.spark.ingest.exact import as_texts, require_exact, require_known_fields
from memwal_core.spark.ingest.routed import CORRUPT, FILE
from memwal_core.spark.ingest.watching import cause_of, unreadable_file
from memwal_core.spark.session import NO_ANSWER

_TEXTS = frozenset({SourceFormat.CSV, SourceFormat.JSON})
_NAME = "memwal:name"
_NO_TYPE = ("PARQUET_TYPE_ILLEGAL", "UNSUPPORTED_TIME_TYPE", "DECIMAL_PRECISION_EXCEEDS_MAX_PRECISION")
_CSV = {"header": "true", "escape": '"', "unescapedQuoteHandling": "RAISE_ERROR"}
"""As everything but Spark writes it (RFC 4180); what is written otherwise must not become other texts or rows."""
_ENCODINGS = frozenset({"encoding", "charset"})
_OF_QUOTES = frozenset({"quote", "escape", "multiline", *_ENCODINGS})
"""Options after which quotes mean something else, or lines are known."""


def read_source(
    spark: SparkSession, source: Source, schema: pa.Schema, steering: Collection[str | None] = ()
) -> DataFrame:
    """Return the rows of a source.

    Text files are read in the schema of the table; records that do not fit it come with their text in
    ``memwal:corrupt``. Rows of several files come with the number of theirs in ``memwal:file``. Errors say nothing that
    the source says: a registered directory may have any text in it.

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
    if source.known_format not in (SourceFormat.TABLE, SourceFormat.LANCE):
        _require_distinct(spark, [*schema.names, *filter(None, steering)])
    frame = _read(spark, source, schema)
    strangers = [name for name in frame.columns if name not in (CORRUPT, FILE, *schema.names, *steering)]
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
                return _lance(spark, source, schema)
            case SourceFormat.TABLE:
                return _union([spark.table(name) for name in source.places])
            case _:
                return _files(spark, source, schema)
    except NO_ANSWER:
        raise
    except (PySparkException, Py4JError) as error:
        what, remedy = "the source cannot be read", "correct its path, its format or the options of the reader"
        cause = cause_of(error)
        if cause.endswith(_NO_TYPE):
            what = "the source has a column for which Spark has no such type"
            remedy = (
                "ingest the files with the engine local, which reads what the table holds, in batches of at most "
                "ingest.in_process_bytes; or write the column in another type"
            )
        raise InvalidRequestError(
            what,
            remedy=remedy,
            source=str(source),
            format=source.known_format.value,
            file=unreadable_file(error) or "",
            cause=cause,
        ) from None


def _require_distinct(spark: SparkSession, names: Sequence[str]) -> None:
    """Raise ``InvalidRequestError`` if Spark takes several columns for one."""
    if spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    counts = Counter(name.lower() for name in dict.fromkeys(names))
    same = sorted({name for name in names if counts[name.lower()] > 1})
    if same:
        raise InvalidRequestError(
            "the table has columns whose names differ in case only, which this Spark takes for one",
            remedy="set spark.sql.caseSensitive to true for the application, as in spark-defaults.conf",
            columns=same,
        )


def _files(spark: SparkSession, source: Source, schema: pa.Schema) -> DataFrame:
    options = dict(source.options)
    deep = {"recursiveFileLookup": "true", **options}
    # Spark leaves out what lies in directories of a directory, unless their names have values of columns.
    places = source.paths_for_hadoop
    if len(_named(spark, source, places, deep)) > len(_named(spark, source, places, options)):
        options = deep
    frame = _of_format(spark, source, options, schema)
    files = [file for place in source.places for file in _named(spark, source, paths_for_hadoop(place), options)]
    if source.names_batch:
        _require_files_of_batch(source, files)
    if source.known_format is SourceFormat.PARQUET:
        _require_no_empty_file(spark, source, options, files)
    return _numbered(frame, files)


def _named(spark: SparkSession, source: Source, places: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Return the files that Spark would read at some places, in the order of their names; none is read."""
    reader = spark.read.format(source.known_format.value).options(**options).schema("value string")
    found = sorted(reader.load(list(places)).inputFiles(), key=unquote)
    return [file for file in found if not is_hidden(unquote(file).rpartition("/")[2])]  # It lists what it passes over.


def _require_files_of_batch(source: Source, files: Sequence[str]) -> None:
    """Raise ``InvalidRequestError`` if Spark reads other files than those that gave the batch its id."""
    named = {os.path.abspath(file) for place in source.places for file in local_files(place) or ()}
    other = named.symmetric_difference(without_file_scheme(unquote(file)) for file in files)
    if other:
        raise InvalidRequestError(
            "Spark reads other files than those that give the batch its id",
            remedy="name the batch (`memwal ingest --batch ID`), or move the files that differ",
            source=str(source),
            files=sorted(other),
        )


def _require_no_empty_file(
    spark: SparkSession, source: Source, options: Mapping[str, str], files: Sequence[str]
) -> None:
    """Raise ``InvalidRequestError`` if a file has no bytes: Spark passes over it."""
    reader = spark.read.format("binaryFile").options(**options)
    whole = {row[0] for row in reader.load(source.paths_for_hadoop).select(sf.input_file_name()).collect()}
    for file in files:
        if file not in whole:
            raise InvalidRequestError(
                "a file of the source is empty",
                remedy="replace the file by one that is whole, or take it out of the source; then run the batch again",
                source=str(source),
                file=file,
            )


def _numbered(frame: DataFrame, files: Sequence[str]) -> DataFrame:
    """Number the rows by their files, if there are several: Spark reads the largest file first."""
    numbers = {file: number for number, file in enumerate(files)}
    if len(numbers) <= 1:
        return frame
    known = frame.sparkSession.createDataFrame(list(numbers.items()), f"`{_NAME}` string, `{FILE}` long")
    return frame.withColumn(_NAME, sf.input_file_name()).join(sf.broadcast(known), _NAME, "left").drop(_NAME)


def _of_format(spark: SparkSession, source: Source, given: Mapping[str, str], schema: pa.Schema) -> DataFrame:
    places = source.paths_for_hadoop
    match source.known_format:
        case SourceFormat.CSV:
            options = {**_CSV, **_records_of_csv(spark, source, given), **given}
            names = spark.read.options(**options).csv(places).columns
            if not set(names) <= set(schema.names):
                # The table has no type for columns that only steer (order, deletes): infer it.
                options_to_look = {**options, "inferSchema": "true"}
                found = spark.read.options(**options_to_look).csv(places).schema.fields
            else:
                found = [StructField(name, StringType()) for name in names]
            types = _text_types([(each.name, each) for each in found], schema)
            options = {**options, "enforceSchema": "false"}
            require_exact(_tolerant(spark, options, as_texts(types)).csv(places), types, source, options)
            return _tolerant(spark, options, types).csv(places)
        case SourceFormat.JSON:
            if _ENCODINGS & {name.lower() for name in given}:
                given = {"lineSep": "\n", **given}  # Spark asks for it beside an encoding.
            _require_records_of_json(spark, source, given)
            keep = {"columnNameOfCorruptRecord": CORRUPT}
            found = spark.read.options(**{**given, **keep}).json(places).schema.fields
            strangers = [(each.name, each) for each in found if each.name not in (CORRUPT, *schema.names)]
            known = [(name, StructField(name, StringType())) for name in schema.names]
            types = _text_types([*known, *strangers], schema)
            require_known_fields(found, types, source)
            require_exact(_tolerant(spark, given, as_texts(types)).json(places), types, source, given)
            return _tolerant(spark, given, types).json(places)
        case _:
            return _parquet(spark, source, given, schema)


def _parquet(spark: SparkSession, source: Source, given: Mapping[str, str], schema: pa.Schema) -> DataFrame:
    """Read files of Parquet; values that directories name are texts where the table's column is, as in ``v=007``."""
    places = source.paths_for_hadoop
    frame = spark.read.options(**given).parquet(*places)
    parts = {part for file in frame.inputFiles() for part in file.split("/")[:-1] if "=" in part}
    named = {unquote(part.partition("=")[0]) for part in parts}
    texts = {each.name for each in spark_types(schema) if each.name in named and each.dataType == StringType()}
    if all(each.dataType == StringType() for each in frame.schema if each.name in texts):
        return frame
    types = StructType([StructField(each.name, StringType()) if each.name in texts else each for each in frame.schema])
    return spark.read.options(**given).schema(types).parquet(*places)


def _records_of_csv(spark: SparkSession, source: Source, given: Mapping[str, str]) -> dict[str, str]:
    """Return how Spark finds the records: a quoted value with line ends would become several rows.

    Raises:
        InvalidRequestError: Quotes of a file are not closed, so that all rows behind them would become one value.
    """
    line = sf.col("value")
    quotes = sf.length(line) - sf.length(sf.replace(line, sf.lit('"')))
    is_told = bool(_OF_QUOTES & {name.lower() for name in given})
    found = _count_lines(spark, source, given, sf.lit(0) if is_told else quotes % 2)
    for file, lines in found.items():
        if lines % 2:
            raise InvalidRequestError(
                "a CSV file has a quote that is not closed",
                remedy="close it, and double quotes within values, or say how they are written with the options of the "
                "reader: quote, escape, multiLine",
                source=str(source),
                file=file,
            )
    return {"multiLine": "true"} if found else {}


def _require_records_of_json(spark: SparkSession, source: Source, given: Mapping[str, str]) -> None:
    """Raise ``InvalidRequestError`` if a line goes on behind its record, where Spark reads nothing."""
    if "multiline" in {name.lower() for name in given}:
        return
    line, corrupt = sf.trim("value"), {"columnNameOfCorruptRecord": CORRUPT}
    alone = sf.from_json(line, f"record string, `{CORRUPT}` string", {**given, **corrupt})
    in_list = sf.from_json(sf.concat(sf.lit("["), line, sf.lit("]")), "array<struct<record string>>", dict(given))
    goes_on = (line != "") & alone.getField(CORRUPT).isNull() & (sf.coalesce(sf.size(in_list), sf.lit(0)) != 1)
    for file, lines in _count_lines(spark, source, given, goes_on).items():
        raise InvalidRequestError(
            "lines of JSON go on behind their record",
            remedy="write one record in each line, or one list of records",
            source=str(source),
            file=file,
            lines=lines,
        )


def _count_lines(spark: SparkSession, source: Source, given: Mapping[str, str], mark: Column) -> dict[str, int]:
    """Count the lines that are marked, of each file that has some.

    Raises:
        InvalidRequestError: A file is not UTF-8, and no option says what it is: Spark replaces what it cannot read.
    """
    is_told = bool(_ENCODINGS & {name.lower() for name in given})
    other = sf.lit(False) if is_told else ~sf.is_valid_utf8("value")
    lines = spark.read.options(**given).text(source.paths_for_hadoop)
    marked = lines.select(sf.input_file_name().alias("file"), mark.cast("long").alias("lines"), other.alias("other"))
    sums = [sf.sum("lines").alias("lines"), sf.count_if("other").alias("other")]
    found = marked.groupBy("file").agg(*sums).where("lines + other > 0").collect()
    for row in found:
        if row["other"]:
            raise InvalidRequestError(
                "a text file is not UTF-8",
                remedy="write it as UTF-8, or name what it is with the option `encoding` of the reader",
                source=str(source),
                file=row["file"],
                lines=row["other"],
            )
    return {row["file"]: row["lines"] for row in found}


def _text_types(fields: Sequence[tuple[str, StructField]], schema: pa.Schema) -> StructType:
    """Return the types in which text is read: the table's where it has the column."""
    of_table = {each.name: each for each in spark_types(schema).fields}
    return StructType([of_table.get(name, other) for name, other in fields] + [StructField(CORRUPT, StringType())])


def _tolerant(spark: SparkSession, options: Mapping[str, str], types: StructType) -> DataFrameReader:
    keep = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return spark.read.options(**{**options, **keep}).schema(types)


def _lance(spark: SparkSession, source: Source, schema: pa.Schema) -> DataFrame:
    frames = []
    for place in source.places:
        dataset = open_lance(place, source.storage_options)
        names = spark_types(dataset.schema).names
        lost = [each for each in dataset.schema if each.name not in names and each.name in schema.names]
        if lost:
            raise InvalidRequestError(
                "the source has a column for which Spark has no such type",
                remedy="ingest batches small enough for one process (`memwal ingest --engine local`), see "
                "ingest.in_process_bytes; or write the column in another type",
                source=place,
                types={each.name: str(each.type) for each in lost},
            )
        frames.append(base_frame(spark, dataset, names, dict(source.storage_options)))
    return _union(frames)


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first
