"""Reading through the data source as Spark's processes do, without a JVM: every hand-over is pickled."""

from __future__ import annotations

import pickle

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from memwal_core.spark.data_source import MemWalDataSource


class LoadedFrame:
    """What a DataFrame is after ``load``: the data source as one process left it, and its schema.

    Args:
        schema: Columns that the user gives; inferred if None.
        **options: Of the data source.
    """

    def __init__(self, schema: StructType | None = None, **options: object) -> None:
        """Infer the schema, which pins the table."""
        source = MemWalDataSource(CaseInsensitiveDict({name: str(value) for name, value in options.items()}))
        self.schema = schema if schema is not None else source.schema()
        self._source = _sent(source)

    def parts(self) -> list[pa.Table]:
        """Return the rows of each task.

        Raises:
            AssertionError: A batch has another schema than Spark accepts.
        """
        reader: DataSourceReader = pickle.loads(self._source).reader(self.schema)  # noqa: S301 - our own bytes
        sent = _sent((reader, reader.partitions()))
        expected = to_arrow_schema(self.schema, timezone="UTC")
        read = []
        for number in range(len(reader.partitions())):
            reader, partitions = pickle.loads(sent)  # noqa: S301 - as each task has its own copy
            batches = list(reader.read(partitions[number]))
            if any(not batch.schema.equals(expected) for batch in batches):
                raise AssertionError(f"a batch has {batches[0].schema}, expected {expected}")
            read.append(pa.Table.from_batches(batches, schema=expected))
        return read

    def rows(self) -> pa.Table:
        """Return all rows; errors as for ``parts``."""
        expected = to_arrow_schema(self.schema, timezone="UTC")
        return pa.concat_tables([expected.empty_table(), *self.parts()])


def _sent(what: object) -> bytes:
    """Return what Spark sends to another Python process."""
    return bytes(CPickleSerializer().dumps(what))  # type: ignore[no-untyped-call]
