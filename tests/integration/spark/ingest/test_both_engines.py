"""A batch is the same batch for a process and for executors: one may go on where the other stopped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.ingest.admission import RowAdmission
from memwal_core.ingest.arrow_rows import ArrowRows
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.ingestion import BatchRequest, ingest_rows
from memwal_core.reader.merged import MergedReader
from memwal_core.spark.ingest.frame import FrameBatch, _FrameRows, ingest_frame
from memwal_core.table import Table
from testkit.tables.people import PRIMARY_KEY_METADATA

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
KEY = {"number": pa.int64(), "name": pa.string(), "raw": pa.binary(), "flag": pa.bool_()}
SCHEMA = pa.schema(
    [
        *(pa.field(name, kind, nullable=False, metadata=PRIMARY_KEY_METADATA) for name, kind in KEY.items()),
        pa.field("value", pa.float64()),
    ]
)
BATCH = BatchId("stream", "b")


def rows() -> pa.Table:
    """Rows with narrower types than the table has, keys that come again, and an order that has every odd value."""
    numbers = [each % 40 for each in range(100)]
    order = [None, float("nan"), -1.0, 0.0, float("inf"), 2.5, -float("inf")]
    return pa.table(
        {
            "number": pa.array(numbers, pa.int32()),
            "name": [f"n{number % 7}" for number in numbers],
            "raw": [bytes([number]) for number in numbers],
            "flag": [number % 2 == 0 for number in numbers],
            "value": [float(each) for each in range(100)],
            "at": [order[each % len(order)] for each in range(100)],
        }
    )


def made(uri: str) -> BaseTable:
    return Table.create(uri, SCHEMA, key=list(KEY), buckets=3).base


def test_both_count_the_same_and_write_the_same(spark: SparkSession, tmp_path: Path) -> None:
    here, there = made(str(tmp_path / "here.lance")), made(str(tmp_path / "there.lance"))
    frame = spark.createDataFrame(rows()).coalesce(1)
    asked = BatchRequest(BATCH, order_by="at")
    onto = FrameBatch(BATCH, order_by="at")
    admission = RowAdmission.of(here)

    counted = ArrowRows(rows(), admission, here, asked).count()
    frames = _FrameRows(frame, admission, here, onto)
    with frames.kept():
        assert frames.count() == counted
    assert sum(each.rows.rows for each in counted.regions.values()) == 100

    ingest_rows(ArrowRows(rows(), admission, here, asked), admission, here, asked)
    ingest_frame(frame, there, onto)
    found = [MergedReader(each).to_arrow().sort_by("number") for each in (here, there)]
    assert found[0].equals(found[1])
    assert found[0].num_rows == 40
