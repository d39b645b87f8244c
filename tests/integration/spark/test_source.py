"""Reading a table through Spark itself; ``test_reading`` has the many cases, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader import Consistency
from memwal_core.spark.data_source import register, stated_freshness
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import people
from testkit.tables.readable import as_model
from tests.integration.spark.layered import make_layered_table

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


@pytest.fixture
def table(tmp_path: Path) -> str:
    make_layered_table(str(tmp_path / "t"))
    return str(tmp_path / "t")


def load(spark: SparkSession, uri: str, **options: object) -> DataFrame:
    register(spark)
    return spark.read.format("memwal").options(**{name: str(value) for name, value in options.items()}).load(uri)


@pytest.mark.req("RD-69")
def test_frame_has_the_rows_of_the_reader_and_one_moment_for_all_its_uses(table: str, spark: SparkSession) -> None:
    expected = Table.open(table).to_arrow(consistency=Consistency.DURABLE).sort_by("id")
    frame = load(spark, table, consistency="durable", partition_rows=50)
    assert frame.rdd.getNumPartitions() > 4
    with TableWriter.open(BaseTable.open(table), takeover="fence") as writer:
        writer.put(people(*range(30), 999, name="after the load"))
        writer.flush()
    Table.open(table).run(MergeRequest())

    assert frame.toArrow().sort_by("id").to_pylist() == expected.to_pylist()
    joined = frame.alias("a").join(frame.where("name = 'flushed'").alias("b"), "id")
    assert joined.count() == expected.column("name").to_pylist().count("flushed")
    assert json.loads(stated_freshness(frame))["achieved"] == "durable"
    with pytest.raises(InvalidRequestError, match="does not state"):
        stated_freshness(frame.select("name"))
    assert as_model(load(spark, table).toArrow())[999] == "after the load"


OPTIONS = {
    "storage.azure_storage_account_key": "CANARY-of-azure-0123456789",
    "storage.azure_storage_sas_key": "sv=1&sig=CANARY0123456789",
    "storage.google_service_account_key": "CANARY-of-google-0123456789",
    "storage.aws_access_key_id": "CANARY0123456789",
}
"""A local table does not use them; Spark's own pattern for names of secrets matches none of them."""


def shown_plan(spark: SparkSession, uri: str) -> str:
    """Return what pages, REST API and event log show of a query that was loaded with secrets."""
    spark.read.format("memwal").options(**OPTIONS).load(uri).createOrReplaceTempView("people")
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    told = spark._jsparkSession.sharedState().statusStore().executionsList()
    return str(told.apply(told.size() - 1).physicalPlanDescription())


def test_no_plan_shows_options_of_the_object_store(table: str, spark: SparkSession) -> None:
    register(spark)
    assert spark.conf.get("spark.sql.redaction.options.regex") == r"(?i)url|(?i:^storage\.)"
    shown = shown_plan(spark, table)
    spark.conf.unset("spark.sql.redaction.options.regex")
    control = shown_plan(spark, table)
    register(spark)

    assert [name for name in OPTIONS if f"{name}=*********(redacted)" not in shown] == []
    assert "CANARY" not in shown
    assert [name for name in OPTIONS if f"{name}={OPTIONS[name]}" not in control] == []


def test_filter_of_one_use_of_a_frame_does_not_reach_the_others(table: str, spark: SparkSession) -> None:
    """Spark 4.3 keeps one read plan for all uses of a frame: a filter pushed down for one would apply to all."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, table)
        rows = frame.count()
        assert frame.where("id = 55").count() == 1
        assert frame.count() == rows
        assert frame.where("id = 55").union(frame.where("id = 1")).count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_error_of_the_table_reaches_the_user_with_what_to_do(table: str, spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="next: read with consistency `durable`"):
        load(spark, table, consistency="in_process")
