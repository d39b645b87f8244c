"""The merge DAG on real tables: Airflow runs the tasks, Spark the job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.ids import parse_region_id
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

ON_SPARK = {"MEMWAL_DISPATCH__MAX_REGIONS": "0"}
"""Of these tables everything is small enough for a worker."""

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Four regions with two flushed MemTables each; ids 0 to 49 were written twice."""
    made = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(made) as writer:
        writer.put(people(*range(100), name="old"))
        writer.flush()
        writer.put(people(*range(50), name="new"))
        writer.flush()
    return made


def _names(table: BaseTable) -> dict[int, str]:
    rows = table.dataset().to_table(columns=["id", "name"]).to_pydict()
    assert len(rows["id"]) == len(set(rows["id"]))
    return dict(zip(rows["id"], rows["name"], strict=True))


@pytest.mark.req("MRG-26", "MRG-27")
def test_merge_brings_all_rows_in_and_a_second_run_changes_nothing(table: BaseTable, run_dag: RunDag) -> None:
    first = run_dag({"table": table.uri}, **ON_SPARK)

    assert first.returncode == 0, first.stdout
    assert "as a Spark application: 4 regions are more than dispatch.max_regions, which is 0" in first.stdout
    assert "Spark-Submit cmd" in first.stdout
    assert "job 1 of 1: 4 regions, 8 generations" in first.stdout
    assert "4 regions merged as planned, 100 rows, every key once" in first.stdout
    assert _names(table) == {number: "new" if number < 50 else "old" for number in range(100)}
    version = table.state().version

    second = run_dag({"table": table.uri})

    assert second.returncode == 0, second.stdout
    assert "nothing to do: every flushed MemTable is merged" in second.stdout
    assert "nothing to do, or a dry run" in second.stdout
    assert "starting task_id=verify" not in second.stdout
    assert "Spark-Submit cmd" not in second.stdout
    assert table.state().version == version


def test_dry_run_says_what_it_would_do_and_changes_nothing(table: BaseTable, run_dag: RunDag) -> None:
    version = table.state().version

    ran = run_dag({"table": table.uri, "dry_run": True})

    assert ran.returncode == 0, ran.stdout
    assert "job 1 of 1: 4 regions, 8 generations" in ran.stdout
    assert "dry run: nothing is changed" in ran.stdout
    assert "Spark-Submit cmd" not in ran.stdout
    assert table.state().version == version


def test_wrong_parameter_fails_before_any_task(table: BaseTable, run_dag: RunDag) -> None:
    ran = run_dag({"table": table.uri, "max_bytes": 10})

    assert ran.returncode != 0
    assert "Invalid input for param max_bytes: 10 is" in ran.stdout
    assert "starting task_id" not in ran.stdout


def test_table_that_does_not_exist_fails_at_once_in_spite_of_retries(tmp_path: Path, run_dag: RunDag) -> None:
    ran = run_dag({"table": str(tmp_path / "nobody.lance")}, MAINTENANCE_RETRIES="4")

    assert ran.returncode != 0
    assert ran.stdout.count("starting task_id=plan") == 1
    assert "correct the input and trigger the run again" in ran.stdout


def test_job_fails_the_run_without_a_retry_when_a_region_needs_a_person(table: BaseTable, run_dag: RunDag) -> None:
    # The first generation of one region is merged, and then somebody must look.
    region = _region_of_two(table)
    QuarantineStore(table.store).add(Quarantined(parse_region_id(region.name), 2, ("ids: 3 of 9 rows",), ""))

    ran = run_dag({"table": table.uri}, MAINTENANCE_RETRIES="4", **ON_SPARK)

    assert ran.returncode != 0
    assert "Error code is: 5" in ran.stdout
    assert ran.stdout.count("starting task_id=work") == 1
    assert "starting task_id=verify" not in ran.stdout
    [alert] = [line for line in ran.stdout.splitlines() if "maintenance failed [" in line]
    assert f"[table={table.uri}, region={region.name}, verdict=some regions cannot be merged until" in alert
    assert "quarantined: quality" in alert
    assert "runbook=docs/runbooks/quarantined-generations.md, dag=memwal_merge, task=work]" in alert
    assert set(_names(table)) == set(range(100))


def test_damaged_region_is_left_out_and_the_run_ends_well(table: BaseTable, run_dag: RunDag) -> None:
    """No retry mends it: the signal tells people, and the chain goes on with all other regions."""
    [lost] = _region_of_two(table).glob("*_gen_2")
    for file in (lost / "_versions").iterdir():
        file.unlink()

    ran = run_dag({"table": table.uri}, MAINTENANCE_RETRIES="4", **ON_SPARK)

    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count("starting task_id=work") == 1
    opened = Table.open(table.uri).opened
    assert [run.outcome.value for run in opened.ledger.runs("merge")] == ["partial"]
    assert set(_names(table)) == set(range(100))


def _region_of_two(table: BaseTable) -> Path:
    root = Path(table.uri) / "_mem_wal"
    return next(path for path in sorted(root.iterdir()) if any(path.glob("*_gen_2")))
