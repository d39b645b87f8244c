"""The quality DAG on a real table: Airflow runs the tasks, Spark and Great Expectations the checks."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.quality.model import Stage
from memwal_core.table import Table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people, quality_of

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.slow,
]

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=2)
    write_generations(made, range(10), name="new")
    return made


@pytest.mark.req("MRG-30")
def test_failed_check_fails_the_run_with_its_runbook_and_keeps_the_results(
    table: BaseTable, run_dag: RunDag, tmp_path: Path
) -> None:
    admin = Table.open(table.uri)
    merge_natively(admin.base, people(0, name="new"), dict.fromkeys(admin.opened.manifests.region_ids(), 1))

    ran = run_dag({"table": table.uri, "stage": "after", "docs": str(tmp_path / "docs")}, dag="memwal_quality")

    assert ran.returncode != 0
    assert "docs/runbooks/check-failed.md" in ran.stdout
    newest = quality_of(admin).newest(Stage.AFTER)
    assert newest is not None
    assert newest["failed"] == 2
    [run] = admin.opened.ledger.runs("quality")
    assert (str(run.key), run.outcome.value) == ("quality/after", "blocked")
    assert run.verdict == "failed: merged_keys_present, row_arithmetic"
    assert run.holder.startswith("memwal_quality/")
    assert list((tmp_path / "docs").rglob("index.html"))
