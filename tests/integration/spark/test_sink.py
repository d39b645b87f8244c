"""Writing DataFrames and streams through regions: each batch once, and a clear refusal of what cannot be promised."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.streaming import StreamingQuery

from memwal_core.base_table import BaseTable
from memwal_core.format.paths import ROWS_STAGING_DIRECTORY
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchRecords
from memwal_core.region import ManifestStore
from memwal_core.spark.data_source import register
from memwal_core.spark.ingest.streams import into_regions
from memwal_core.table import Table
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import as_model

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]
COLUMNS = "id long, name string, score double"


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "t"), rows=people(*range(10)))


def model(table: BaseTable) -> dict[int, str]:
    return as_model(Table.open(table.uri).to_arrow())


def generations(table: BaseTable) -> int:
    store = ManifestStore(table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng)
    return sum(len(each.flushed_generations) for each in store.load_many(store.region_ids()))


def writer(frame: DataFrame, table: BaseTable, mode: str = "append", **options: str) -> DataFrameWriter:
    register(frame.sparkSession)
    return frame.write.format("memwal").mode(mode).options(uri=table.uri, **options)


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    return spark.createDataFrame(rows).repartition(3)


@pytest.mark.slow
def test_frame_is_written_as_one_batch_and_a_named_batch_only_once(table: BaseTable, spark: SparkSession) -> None:
    writer(frame_of(spark, people(*range(5, 50), name="one")), table).save()
    assert model(table) == {key: f"p{key}" for key in range(5)} | dict.fromkeys(range(5, 50), "one")

    named = {"stream": "nightly", "batch": "21"}
    writer(frame_of(spark, people(*range(20), name="two")), table, **named).save()
    writer(frame_of(spark, people(3, name="three")), table).save()
    written = generations(table)
    writer(frame_of(spark, people(*range(20), name="two")), table, **named).save()

    assert model(table) == {3: "three"} | {key: "two" for key in range(20) if key != 3} | dict.fromkeys(
        range(20, 50), "one"
    )
    assert generations(table) == written
    assert list(table.store.list_objects(ROWS_STAGING_DIRECTORY)) == []


def test_overwriting_and_rows_that_do_not_fit_are_refused_before_anything_is_written(
    table: BaseTable, spark: SparkSession
) -> None:
    bad = spark.createDataFrame([(1, "a", 1.0), (None, "b", 2.0)], COLUMNS)

    with pytest.raises(PySparkException, match='use mode "append"'):
        writer(bad, table, mode="overwrite").save()
    with pytest.raises(PySparkException, match="nothing was written"):
        writer(bad, table).save()

    assert model(table) == {key: f"p{key}" for key in range(10)}
    assert generations(table) == 0
    assert list(table.store.list_objects(ROWS_STAGING_DIRECTORY)) == []


def start(spark: SparkSession, source: Path, table: BaseTable, checkpoint: Path, **options: str) -> StreamingQuery:
    register(spark)
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    sink = stream.writeStream.format("memwal").options(uri=table.uri, **options)
    return sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def add_file(source: Path, number: int, rows: pa.Table) -> None:
    """Add input; files are read in the order of their times."""
    source.mkdir(exist_ok=True)
    path = source / f"{number}.parquet"
    pq.write_table(rows, path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def test_stream_writes_each_batch_once_over_restarts_and_replays(
    table: BaseTable, spark: SparkSession, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    for number in range(3):
        add_file(source, number, people(*range(number, number + 20), name=f"round {number}"))
    query = start(spark, source, table, checkpoint)
    query.awaitTermination()
    expected = {0: "round 0", 1: "round 1"} | dict.fromkeys(range(2, 22), "round 2")
    assert model(table) == expected
    records = BatchRecords(table.store, table.clock)
    assert all(records.done(BatchId.numbered(query.id, number)) for number in range(3))
    written = generations(table)

    for path in (checkpoint / "commits").glob("*2*"):  # as if Spark had died before it wrote down batch 2
        path.unlink()
    start(spark, source, table, checkpoint).awaitTermination()
    assert model(table) == expected
    assert generations(table) == written

    add_file(source, 3, people(5, 100, name="round 3"))
    start(spark, source, table, checkpoint).awaitTermination()
    assert model(table) == expected | {5: "round 3", 100: "round 3"}
    assert list(table.store.list_objects(ROWS_STAGING_DIRECTORY)) == []


def start_by(spark: SparkSession, source: Path, table: BaseTable, checkpoint: Path, way: str) -> StreamingQuery:
    if way == "sink":
        return start(spark, source, table, checkpoint)
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))
    sink = stream.writeStream.foreachBatch(into_regions(table)).option("checkpointLocation", str(checkpoint))
    return sink.trigger(availableNow=True).start()


@pytest.mark.parametrize("way", ["sink", "executors"])
def test_checkpoint_that_was_set_back_is_refused_and_a_new_one_writes_everything(
    table: BaseTable, spark: SparkSession, tmp_path: Path, way: str
) -> None:
    """Rows that it had under the numbers of batches that were written were left out without a word."""
    source, checkpoint, backup = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "backup"
    add_file(source, 0, people(0, name="round 0"))
    start_by(spark, source, table, checkpoint, way).awaitTermination()
    shutil.copytree(checkpoint, backup)
    for number in (1, 2):
        add_file(source, number, people(number, name=f"round {number}"))
    start_by(spark, source, table, checkpoint, way).awaitTermination()

    (source / "1.parquet").unlink()
    (source / "2.parquet").unlink()
    for number in (3, 4):
        add_file(source, number, people(number, name=f"round {number}"))
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    with pytest.raises(PySparkException, match="checkpoint of this query is older"):
        start_by(spark, source, table, checkpoint, way).awaitTermination()
    assert model(table) == {number: f"p{number}" for number in range(10)} | {
        number: f"round {number}" for number in range(3)
    }

    start_by(spark, source, table, tmp_path / "new", way).awaitTermination()
    assert model(table) == {number: f"p{number}" for number in range(10)} | {
        number: f"round {number}" for number in range(5)
    }


@pytest.mark.parametrize("way", ["sink", "executors"])
def test_checkpoint_that_was_set_back_by_one_batch_is_refused(
    table: BaseTable, spark: SparkSession, tmp_path: Path, way: str
) -> None:
    """The rows that had come since were taken for those that were written."""
    source, checkpoint, backup = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "backup"
    add_file(source, 0, people(0, name="round 0"))
    start_by(spark, source, table, checkpoint, way).awaitTermination()
    shutil.copytree(checkpoint, backup)
    add_file(source, 1, people(1, name="round 1"))
    start_by(spark, source, table, checkpoint, way).awaitTermination()

    add_file(source, 1, people(1, 2, name="round 2"))
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)
    with pytest.raises(PySparkException, match="it had fewer rows"):
        start_by(spark, source, table, checkpoint, way).awaitTermination()
    assert model(table) == {number: f"p{number}" for number in range(10)} | {0: "round 0", 1: "round 1"}


def test_stream_with_complete_output_is_refused(table: BaseTable, spark: SparkSession, tmp_path: Path) -> None:
    add_file(tmp_path / "in", 0, people(1, name="x"))
    register(spark)
    counted = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in")).groupBy("id").count()
    sink = counted.writeStream.format("memwal").outputMode("complete").option("uri", table.uri)
    query = sink.option("checkpointLocation", str(tmp_path / "c1")).trigger(availableNow=True).start()

    with pytest.raises(PySparkException, match='output mode "append"'):
        query.awaitTermination()
    assert generations(table) == 0
