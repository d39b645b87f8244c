"""The merge on Spark: executors prepare, the driver commits, and the result is that of one process."""

from __future__ import annotations

import json
import shutil

import lance
import pyarrow as pa
import pytest

from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine
from memwal_core.settings import MergeSettings, Settings
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.table import Table
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people
from tests.integration.spark.submitted import submit

# The session starts its JVM by fork and exec while Lance is loaded, which is harmless.
pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:lance is not fork-safe")]


def make_table(uri: str) -> None:
    make_people_table(uri, rows=people(*range(50)))
    deleted = pa.table({"id": [3, 100]}, schema=pa.schema([PEOPLE.field("id")]))
    for number in range(3):
        generations = [
            [Put(people(100 * number + 1, 100 * number + 2, name=f"r{number}g1"))],
            [Put(people(100 * number + 2, name=f"r{number}g2"))],
        ]
        if number == 1:
            generations.append([Delete(deleted)])
        write_native_generations(uri, native_region_id(number), generations)


def rows(uri: str) -> pa.Table:
    return lance.dataset(uri).to_table().sort_by("id")


@pytest.mark.req("MRG-26", "MRG-29")
def test_executors_give_the_rows_and_progress_of_one_process(tmp_path, spark):
    on_spark, in_process = str(tmp_path / "spark"), str(tmp_path / "local")
    make_table(on_spark)
    shutil.copytree(on_spark, in_process)

    admin = Table.open(on_spark, settings=Settings(merge=MergeSettings(unit_bytes=1)))
    report = admin.run(MergeRequest(engine=Engine.SPARK), executors=SparkExecutors(lambda: spark, admin.base))
    expected = Table.open(in_process).run(MergeRequest())

    assert rows(on_spark).equals(rows(in_process))
    assert (report.outcome, report.place.on_executors) == (JobOutcome.DONE, True)
    assert [commit.marks for commit in report.commits] == [commit.marks for commit in expected.commits]
    assert admin.run(MergeRequest()).outcome is JobOutcome.NOTHING_TO_DO


@pytest.mark.req("MRG-27")
def test_job_reports_to_a_file_and_ends_with_the_outcome_code(tmp_path, spark):
    uri, target = str(tmp_path / "t"), tmp_path / "report.json"
    make_table(uri)

    assert submit("merge", uri=uri, request={"dry_run": True}, report=str(target)) == 0
    assert json.loads(target.read_text())["outcome"] == "planned"
    assert submit("merge", uri=str(tmp_path / "nowhere")) == 2
    assert submit("merge", uri=uri, request={"max_bytes": 0}) == 2


def refuse(session):
    raise AssertionError("a session was started")


@pytest.mark.req("MRG-27")
def test_small_merge_and_one_with_nothing_to_do_start_no_session(tmp_path, monkeypatch):
    uri = str(tmp_path / "t")
    make_table(uri)
    monkeypatch.setattr(LateSession, "__call__", refuse)

    assert submit("merge", uri=uri) == 0
    assert submit("merge", uri=uri) == 3
    done, nothing = Table.open(uri).opened.ledger.runs("merge")
    assert (done.outcome.value, nothing.outcome.value) == ("done", "nothing_to_do")
    assert done.facts["where"]["engine"] == "local"
    assert "2 tombstones" in done.facts["strategy"]["reason"]


def test_session_starts_with_a_merge_that_is_large_enough_and_ends_with_the_job(tmp_path, monkeypatch, capsys):
    uri = str(tmp_path / "t")
    make_table(uri)
    monkeypatch.setenv("MEMWAL_MERGE__EXECUTORS_MIN_BYTES", "1")
    monkeypatch.setattr(LateSession, "__call__", refuse)

    assert submit("merge", uri=uri) == 1
    assert "AssertionError: a session was started" in capsys.readouterr().err
