"""A batch is the same batch for a process and for executors: one may go on where the other stopped."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
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


def test_columns_are_those_of_the_table_whatever_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Names of routing, and names that differ in case only, ended as a Spark that may answer later."""
    names = ["Id", "id", "__order", "__sequence", "__REGION", "__corrupt", "__key_hash", "__task", "column0"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    given = pa.table({**{name: [number, number, number] for number, name in enumerate(names)}, "Id": [1, 1, 2]})
    given = given.set_column(8, "column0", pa.array([1, 2, 3])).append_column("AT", pa.array([2, 1, 1]))
    found = []
    for engine in ("process", "spark"):
        table = Table.create(str(tmp_path / engine), schema, key="Id", buckets=2).base
        if engine == "process":
            admission, asked = RowAdmission.of(table), BatchRequest(BATCH, order_by="AT")
            ingest_rows(ArrowRows(given, admission, table, asked), admission, table, asked)
        else:
            assert ingest_frame(spark.createDataFrame(given), table, FrameBatch(BATCH, order_by="AT")).rows_read == 3
        found.append(MergedReader(table).to_arrow().sort_by("Id"))
    assert found[0].equals(found[1])
    assert found[0].column("column0").to_pylist() == [1, 3]


@pytest.mark.parametrize(
    ("sql", "asked", "what"),
    [
        ("1 at, 2 at", {"order_by": "at"}, "exactly one column"),
        ("1.5D value", {}, "does not have the columns"),
        ("interval '1' year at", {}, "does not hand on values of this type"),
    ],
)
def test_frame_that_spark_cannot_tell_apart_or_hand_on_is_refused_for_good(
    spark: SparkSession, tmp_path: Path, sql: str, asked: dict[str, str], what: str
) -> None:
    """It was called a failure of Spark, after which the batch should be run again."""
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64()), ("value", pa.float64())]), key="id").base
    frame = spark.sql(f"select 1L id, 0.5D value, {sql}")
    with pytest.raises(InvalidRequestError, match=what):
        ingest_frame(frame, table, FrameBatch(BATCH, **asked))


def test_order_of_two_columns_of_one_name_is_refused(tmp_path: Path) -> None:
    """It was a KeyError."""
    table = Table.create(str(tmp_path / "t"), pa.schema([("id", pa.int64())]), key="id").base
    given = pa.Table.from_arrays([pa.array([1]), pa.array([1]), pa.array([2])], names=["id", "at", "at"])
    admission, asked = RowAdmission.of(table), BatchRequest(BATCH, order_by="at")
    with pytest.raises(InvalidRequestError, match="exactly one column"):
        ingest_rows(ArrowRows(given, admission, table, asked), admission, table, asked)
