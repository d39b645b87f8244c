"""Freezes and Spark: a check that fails in a quality run freezes, and dry runs of jobs on Spark say what is frozen."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import FrozenError, UnavailableError
from memwal_core.format.paths import RECORD_DIRECTORY
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.quality.model import Check
from memwal_core.spark.executors import SparkExecutors
from memwal_core.table import Table
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people, reopened
from tests.integration.spark.submitted import submit

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def uri(tmp_path: Path) -> str:
    made = make_people_table(str(tmp_path / "t"), rows=people(1, 2), buckets=1)
    write_generations(made, [3, 4], name="merged")
    assert Table.open(made.uri).run(MergeRequest()).outcome is JobOutcome.DONE
    return made.uri


def require_frozen(uri: str, request: JobRequest) -> None:
    with pytest.raises(FrozenError) as caught:
        Table.open(uri).run(request)
    assert caught.value.facts["causes"] == ["check-failed"]


@pytest.mark.slow
def test_check_that_fails_in_a_spark_application_freezes_until_a_thaw_and_merges_go_on(
    uri: str, spark: SparkSession
) -> None:
    del spark  # The application takes the session that runs.
    assert submit("quality", uri=uri, request={"stage": "after"}) == 0
    assert Table.open(uri).opened.freezes.active() == ()
    lance.dataset(uri).delete("id < 3")

    assert submit("quality", uri=uri, request={"stage": "after"}) == JobOutcome.BLOCKED.exit_code
    (freeze,) = Table.open(uri).opened.freezes.active()
    assert (freeze.cause, freeze.by, freeze.region_id) == (FreezeCause.CHECK_FAILED, "quality", None)
    assert freeze.evidence["version"] == lance.dataset(uri).version
    assert list(freeze.evidence["failed"]) == [Check.ROWS_STABLE.value]  # type: ignore[call-overload]

    write_generations(Table.open(uri).base, [5], name="waits")
    require_frozen(uri, MergeRequest())
    require_frozen(uri, GcRequest(dry_run=False))
    assert submit("merge", uri=uri, request={}) == JobOutcome.FROZEN.exit_code
    assert Table.open(uri).view().freshness.frozen == ("check-failed",)
    assert submit("quality", uri=uri, request={"stage": "after"}) == JobOutcome.BLOCKED.exit_code, "checks go on"
    assert len(Table.open(uri).opened.freezes.active()) == 1

    assert Table.open(uri).thaw(Decision(Choice.ACCEPT, "anna", reason="deleted on purpose")).outcome is JobOutcome.DONE
    assert submit("merge", uri=uri, request={}) == 0
    assert sorted(lance.dataset(uri).to_table()["id"].to_pylist()) == [3, 4, 5]
    assert submit("quality", uri=uri, request={"stage": "after"}) == 0
    assert Table.open(uri).opened.freezes.active() == ()


def test_failed_check_that_could_not_freeze_the_table_is_due_again(uri: str, spark: SparkSession) -> None:
    """Its report was stored first: the next run had nothing to do, and merges went on."""
    lance.dataset(uri).delete("id < 3")
    base = Table.open(uri).base
    store, executors = FaultyStore(base.store), SparkExecutors(lambda: spark, base)
    store.fail("put_if_absent", path=lambda path: path.startswith(RECORD_DIRECTORY), times=None)
    due = QualityRequest(due_only=True)

    with pytest.raises(UnavailableError):
        Table(OpenTable.of(reopened(base, store))).run(due, executors=executors)
    report = Table.open(uri).run(due, executors=executors)

    assert report.outcome is JobOutcome.BLOCKED
    require_frozen(uri, MergeRequest())


@pytest.mark.slow
def test_dry_run_of_an_ingest_says_that_the_table_is_frozen(uri: str, tmp_path: Path, spark: SparkSession) -> None:
    del spark
    source = tmp_path / "rows.parquet"
    pq.write_table(people(7), source)
    Table.open(uri).freeze("the loader is broken", by="anna")
    told = CliRunner().invoke(app, ["ingest", uri, str(source), "--dry-run", "--json"])
    assert told.exit_code == 0, told.output
    (found,) = json.loads(told.stdout)["frozen"]
    assert found["command"] == f"memwal thaw {uri} --cause by-hand --choice accept"
