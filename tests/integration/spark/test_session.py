"""Spark runs here: the chosen Java, the session fixture, Arrow between driver and workers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def _double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.multiply(batch.column(0), 2)], names=["id"])


def test_arrow_batches_cross_to_workers_and_back(spark: SparkSession) -> None:
    rows = spark.range(1000).repartition(2).mapInArrow(_double, "id long").collect()

    assert sorted(row.id for row in rows) == list(range(0, 2000, 2))
