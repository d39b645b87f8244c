"""The data source ``memwal``: reading a table as Spark DataFrames, and writing through its regions."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from memwal_core.errors import InvalidRequestError
from memwal_core.spark.options import ReadOptions, View, WriteOptions
from memwal_core.spark.reading.parts import Part, PartReader, divide
from memwal_core.spark.reading.pinned import PinnedTable, open_table, pin_table
from memwal_core.spark.reading.views import read_view, view_schema
from memwal_core.spark.types import FRESHNESS_FIELD, cast_batches, same_types, spark_schema
from memwal_core.spark.writing.writers import MemWalStreamWriter, MemWalWriter, plan_write

_REDACTED_OPTIONS = "spark.sql.redaction.options.regex"
_STORAGE_OPTIONS = r"(?i:^storage\.)"
FORMAT = "memwal"
"""What the data source is called in ``format(...)``."""


def register(spark: SparkSession) -> None:
    """Make ``format("memwal")`` known to a session, and hide its options of object stores in plans of that session.

    Executors need this package in their Python environment, and must reach the table by the address
    that the driver uses.
    """
    spark.dataSource.register(MemWalDataSource)
    # Spark shows the options of a write in its pages, its REST API and its event log, but for names that it takes for
    # those of secrets: it knows none of Azure's and Google's.
    hidden = spark.conf.get(_REDACTED_OPTIONS)
    if hidden is None or _STORAGE_OPTIONS not in hidden:
        spark.conf.set(_REDACTED_OPTIONS, f"{hidden}|{_STORAGE_OPTIONS}" if hidden else _STORAGE_OPTIONS)


def stated_freshness(frame: DataFrame) -> str:
    """Return the ``Freshness`` of a DataFrame as JSON text, as it was loaded.

    Raises:
        InvalidRequestError: It states none: it was loaded with an explicit schema, or its first column is gone.
    """
    for field in frame.schema:
        if FRESHNESS_FIELD in (field.metadata or {}):
            return str(field.metadata[FRESHNESS_FIELD])
    raise InvalidRequestError(
        "the DataFrame does not state how fresh it is",
        remedy="ask the DataFrame as it was loaded, without a schema and before columns are dropped",
        columns=frame.columns,
    )


class MemWalDataSource(DataSource):
    """A table with MemWAL regions. See ``docs/reading.md`` for the options."""

    _pinned: PinnedTable | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema, and pin the table: the DataFrame shows this moment whenever it is used.

        Raises:
            InvalidRequestError: An option is wrong, or the table cannot be read this way.
            ObjectNotFoundError: There is no table at the address, or the version does not exist.
            CorruptionError: Stored state is damaged; run `memwal doctor`.
        """
        options = ReadOptions.parse(self.options)
        if options.view not in {View.LSM, View.BASE}:
            return spark_schema(view_schema(options.view))
        self._pinned = pin_table(open_table(options), options)
        return spark_schema(self._pinned.arrow_schema(), self._pinned.freshness.to_dict())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the table; errors as for ``schema``.

        Args:
            schema: As from ``schema``, or given by the user: some of the columns, in any order.

        Raises:
            InvalidRequestError: The given schema does not fit.
        """
        options = ReadOptions.parse(self.options)
        if options.view not in {View.LSM, View.BASE}:
            _check_schema(schema, spark_schema(view_schema(options.view)))
            return ViewReader(options, schema)
        pinned = self._pinned if self._pinned is not None else pin_table(open_table(options), options)
        _check_schema(schema, spark_schema(pinned.arrow_schema()))
        return RowsReader(pinned, schema)

    def writer(self, schema: StructType, overwrite: bool) -> MemWalWriter:
        """Return what writes a DataFrame as one batch; errors as for ``plan_write``.

        Args:
            schema: Of the rows to write.
            overwrite: Whether the table is to be replaced, which is refused.
        """
        options = WriteOptions.parse(self.options)
        return MemWalWriter(options, plan_write(options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> MemWalStreamWriter:  # noqa: N802 - Spark's name
        """Return what writes the batches of a streaming query; errors as for ``plan_write``.

        Args:
            schema: Of the rows to write.
            overwrite: Whether each batch is the whole result (output mode complete), which is refused.
        """
        options = WriteOptions.parse(self.options)
        return MemWalStreamWriter(options, plan_write(options, schema, overwrite=overwrite))


class RowsReader(DataSourceReader):
    """Reads the rows of a pinned table.

    It does not take filters from Spark: version 4.3 keeps one read plan for all uses of a DataFrame, so
    a filter of one use would apply to the others (decision 0015). Users give option ``filter`` instead.
    """

    def __init__(self, pinned: PinnedTable, schema: StructType) -> None:
        self._pinned = pinned
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""
        return [InputPartition(part) for part in divide(self._pinned)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        part = partition.value if partition.value is not None else Part()
        rows = PartReader(self._pinned, self._schema.fieldNames()).read(part)
        return cast_batches(rows, self._schema)


class ViewReader(DataSourceReader):
    """Reads a view that has no rows of the table, in one task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is but one
        """Yield the rows."""
        rows = read_view(self._options).select(self._schema.fieldNames())
        return cast_batches(rows.to_batches(), self._schema)


def _check_schema(found: StructType, expected: StructType) -> None:
    known = {field.name: field for field in expected}
    chosen = StructType([known[field.name] for field in found if field.name in known])
    if not same_types(found, chosen):
        raise InvalidRequestError(
            "the given schema does not fit the table",
            remedy="leave the schema out, or name columns of the table with their types",
            found=found.simpleString(),
            expected=expected.simpleString(),
        )
