"""A step of a cycle as its task, without servers: beside another run, tried again, and as what Airflow tells of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from memwal_core.airflow.assets import assets_of
from memwal_core.airflow.operators.cycle import CycleStepWork
from memwal_core.airflow.tasks.cycle import CycleTable
from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.airflow


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(5)), buckets=1)
    with TableWriter.open(made) as writer:
        writer.put(people(5, 6))
        writer.flush()
    return made


def _chosen(table: BaseTable) -> CycleTable:
    return CycleTable(label="people", table=table.uri, ignore_pauses=False)


def _step(table: BaseTable, name: str, job: str, followed: Any = None) -> CycleStepWork:
    given = {"table": _chosen(table), "followed": followed, "jobs_folder": "", "outlets": assets_of(job)}
    return CycleStepWork(task_id=name, step=name, job=job, **given)


def _context(attempt: int = 1) -> Any:
    dag, instance = SimpleNamespace(dag_id="memwal_maintain"), SimpleNamespace(try_number=attempt)
    return {"dag": dag, "run_id": "manual__1", "ti": instance, "outlet_events": OutletEventAccessors()}


@pytest.mark.parametrize("engine", ["in the worker", "on Spark"])
def test_step_that_another_run_does_is_skipped_as_in_a_cycle_of_the_library(
    table: BaseTable, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed, was tried again with growing waits, and at last called people: two cycles of a backfill did so."""
    if engine == "on Spark":
        monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "0")
        monkeypatch.setattr(SparkSubmitOperator, "execute", None)
    leases = Table.open(table.uri).opened.leases
    lease = leases.acquire(JobKey("merge"), "memwal_merge/manual__2")

    with pytest.raises(AirflowSkipException, match=r"another process holds the lease.*memwal_merge/manual__2"):
        _step(table, "merge", "merge").execute(_context())

    lease.release()
    monkeypatch.delenv("MEMWAL_DISPATCH__MAX_BYTES", raising=False)
    assert _step(table, "merge", "merge").execute(_context())["outcome"] == "done"
