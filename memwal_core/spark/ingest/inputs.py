"""Reading what is to be ingested: files, tables of the session's catalog, other Lance tables."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.jobs.ingest.request import SourceFormat
from memwal_core.quality.frames import base_frame, spark_types
from memwal_core.spark.ingest.routed import CORRUPT
from memwal_core.spark.ingest.watching import cause_of, unreadable_file

_LOCAL_SCHEME = re.compile(r"^file:/+")
_TEXTS = frozenset({SourceFormat.CSV, SourceFormat.JSON})
_BY_SUFFIX = {
    ".parquet": SourceFormat.PARQUET,
    ".csv": SourceFormat.CSV,
    ".json": SourceFormat.JSON,
    ".jsonl": SourceFormat.JSON,
    ".ndjson": SourceFormat.JSON,
    ".lance": SourceFormat.LANCE,
}


@dataclass(frozen=True, slots=True)
class Source:
    """What to read.

    Attributes:
        places: Paths and addresses, or names of tables; at least one. CSV has a header and JSON one record per line,
            unless the options say otherwise.
        format: Their format; if None, it is derived from the suffix of the first.
        options: Of Spark's reader, for example ``sep``.
    """

    places: Sequence[str]
    format: SourceFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """Return the places for people."""
        return ", ".join(self.places)

    @property
    def known_format(self) -> SourceFormat:
        """The format, derived from the suffix if need be.

        Raises:
            InvalidRequestError: The suffix is unknown; name the format.
        """
        found = self.format or _BY_SUFFIX.get(Path(self.places[0].rstrip("/")).suffix)
        if found is None:
            raise InvalidRequestError(
                "the format of the source is unknown",
                remedy=f"name it: {', '.join(SourceFormat)}",
                source=self.places[0],
            )
        return found


def batch_of_files(source: Source) -> str:
    """Return a batch id derived from local files: their names, sizes and modification times.

    Refuses sources that are not all local files.
    """
    found = []
    for place in source.places:
        path = Path(place)
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        if source.known_format in (SourceFormat.LANCE, SourceFormat.TABLE) or not all(map(Path.is_file, files)):
            raise InvalidRequestError(
                "a batch id cannot be derived for this source", remedy="name the batch", source=place
            )
        found += [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in files]
    return f"files-{hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]}"


def read_source(
    spark: SparkSession, source: Source, schema: pa.Schema, steering: Collection[str | None] = ()
) -> DataFrame:
    """Return the rows of a source.

    Text files are read in the schema of the table; records that do not fit it come with their text in
    ``__corrupt``. Errors say nothing that the source says: a registered directory may have any text in it.

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
            _require_plain_files(place)
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


def _require_plain_files(place: str) -> None:
    """Raise ``InvalidRequestError`` for a pipe or device, which would hold Spark for ever, or a link that leads away.

    Looks at what this machine sees; other schemes have files only.
    """
    path = _LOCAL_SCHEME.sub("/", place)
    if "://" in path:
        return
    for start in glob.glob(path) if glob.has_magic(path) and not os.path.exists(path) else [path]:
        inside = os.path.realpath(start)
        for found in _entries(inside):
            target = Path(found).resolve()
            is_plain = target.is_file() or target.is_dir() or not target.exists()  # Whoever reads it says so.
            if not is_plain or not target.is_relative_to(inside):
                raise InvalidRequestError(
                    "the source has an entry that is no file of its own: a pipe, a device, or a link that leads away",
                    remedy="take it out of the source, or name the file that it leads to",
                    source=place,
                    entry=found,
                )


def _entries(place: str) -> Iterator[str]:
    yield place
    for directory, directories, files in os.walk(place):
        # Spark leaves out what is hidden.
        yield from (os.path.join(directory, name) for name in (*directories, *files) if not name.startswith((".", "_")))


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
