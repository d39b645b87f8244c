"""What only large tables need of Spark, on the real thing: plans and counts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.long, pytest.mark.req("O10")]

RunDag = Callable[..., subprocess.CompletedProcess[str]]


def test_large_collection_and_the_count_after_a_large_merge_are_spark_applications(
    tmp_path: Path, run_dag: RunDag
) -> None:
    """Before, Airflow's worker listed the whole table to plan a collection, and read all keys after each merge."""
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(90)))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(85, 95)))
        writer.flush()

    merged = run_dag({"table": table.uri}, "memwal_merge", MEMWAL_DISPATCH__MAX_BYTES="0")
    planned = run_dag({"table": table.uri}, "memwal_gc", MEMWAL_DISPATCH__MAX_OBJECTS="0")

    assert merged.returncode == planned.returncode == 0, merged.stdout + planned.stdout
    assert merged.stdout.count("Spark-Submit cmd") == 2  # the merge, and the count
    assert "95 rows, every key once" in merged.stdout
    assert planned.stdout.count("Spark-Submit cmd") == 1
    assert "stays, and why" in planned.stdout  # The plan, in the log of the task.
    assert "starting task_id=hold" not in planned.stdout
    ledger = Table.open(table.uri).opened.ledger
    assert [run.outcome.value for run in ledger.runs("verify")] == ["done", "done"]
    assert ledger.runs("gc") == []
