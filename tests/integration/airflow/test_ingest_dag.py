"""The ingest DAG on a real table: Airflow runs the tasks, Spark the job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.reader.merged import MergedReader
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"))


def _source(directory: Path, name: str, rows: int) -> str:
    place = directory / f"{name}.parquet"
    pq.write_table(people(*range(rows), name=name), place)
    return str(place)


def _names(table: BaseTable) -> dict[int, str]:
    rows = MergedReader(table).to_arrow()
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def test_a_batch_is_written_by_its_first_run_and_skipped_by_others(
    table: BaseTable, tmp_path: Path, run_dag: RunDag
) -> None:
    old = _source(tmp_path, "old", 100)

    first = run_dag({"table": table.uri, "sources": [old], "batch": "1"}, dag="memwal_ingest")
    with TableWriter.open(table) as later:
        later.put(people(*range(50), name="new"))
        later.flush()
    again = run_dag({"table": table.uri, "sources": [old], "batch": "1"}, dag="memwal_ingest")

    assert first.returncode == 0, first.stdout
    assert "batch ingest/1 is written: 100 rows in 4 regions" in first.stdout
    assert "the merge was not asked for" in first.stdout
    assert again.returncode == 0, again.stdout
    assert "nothing to do: the batch was written before: 100 rows in 4 regions at" in again.stdout
    assert "Spark-Submit cmd" not in again.stdout
    assert _names(table) == {number: "new" if number < 50 else "old" for number in range(100)}


def test_a_bad_batch_fails_at_once_and_says_nothing_that_the_source_says(
    table: BaseTable, tmp_path: Path, run_dag: RunDag
) -> None:
    place = tmp_path / "rows.csv"
    place.write_text("id,name,score\n1,a,1.0\nseven,b,2.0\n")

    ran = run_dag({"table": table.uri, "sources": [str(place)]}, dag="memwal_ingest", MAINTENANCE_RETRIES="4")

    assert ran.returncode != 0
    assert "Error code is: 2" in ran.stdout
    assert "a record cannot be read as a row of the table" in ran.stdout
    assert "11 characters" in ran.stdout
    assert "seven" not in ran.stdout
    assert ran.stdout.count("starting task_id=work") == 1
    assert _names(table) == {}
