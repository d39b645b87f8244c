"""A step of a cycle as its task, without servers: beside another run, tried again, and as what Airflow tells of it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.taskinstance import TaskInstance
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors

from memwal_core.airflow.assets import BASE_TABLE, assets_of
from memwal_core.airflow.defaults import holder_of
from memwal_core.airflow.operators.cycle import HELD, LEFT_OUT, CycleStepWork
from memwal_core.airflow.operators.work import LeasedWork
from memwal_core.airflow.tasks.cycle import CycleTable, begin_cycle, end_cycle, label_of
from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.errors import FencedError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people
from tests.conftest import ROOT
from tests.integration.airflow.tasks.steps import run_step

pytestmark = pytest.mark.airflow


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(5)), buckets=1)
    with TableWriter.open(made) as writer:
        writer.put(people(5, 6))
        writer.flush()
    return made


STARTED = datetime(2026, 1, 1, 0, 0, 3, 250_000, tzinfo=UTC)
RUN = "memwal_maintain/manual__1/2026-01-01T00:00:03.250000Z"


def _chosen(table: BaseTable) -> CycleTable:
    return CycleTable(label="people", table=table.uri, ignore_pauses=False)


def _step(table: BaseTable, name: str, job: str, followed: Any = None) -> CycleStepWork:
    given = {"table": _chosen(table), "followed": followed, "jobs_folder": "", "outlets": assets_of(job)}
    return CycleStepWork(task_id=name, step=name, job=job, **given)


def _context(attempt: int = 1, *, started: datetime = STARTED) -> Any:
    said = dict[str, str]()
    dag, run = SimpleNamespace(dag_id="memwal_maintain"), SimpleNamespace(run_id="manual__1", start_date=started)
    instance = SimpleNamespace(try_number=attempt, said=said, xcom_push=said.__setitem__)
    return {"dag": dag, "run_id": run.run_id, "dag_run": run, "ti": instance, "outlet_events": OutletEventAccessors()}


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

    context = _context()
    with pytest.raises(AirflowSkipException, match=r"another process holds the lease.*memwal_merge/manual__2"):
        _step(table, "merge", "merge").execute(context)

    assert context["ti"].said == {LEFT_OUT: "another process holds the lease of this job", HELD: True}
    begin_cycle(_chosen(table), RUN)
    assert end_cycle(_chosen(table), RUN, {"merge": context["ti"].said[LEFT_OUT]}, ["merge"]) == "conflict"
    [run] = Table.open(table.uri).opened.ledger.runs("maintain")
    assert (run.outcome, run.facts["steps"]["merge"]) == (RunOutcome.BUSY, "conflict")
    lease.release()
    monkeypatch.delenv("MEMWAL_DISPATCH__MAX_BYTES", raising=False)
    assert _step(table, "merge", "merge").execute(_context())["outcome"] == "done"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.req("O10")
def test_steps_above_the_bound_are_applications_and_a_mandatory_gate_holds_what_fails(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were skipped, and the run was green: large tables were never merged, and no gate held anything."""
    local = {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(local))
    suites = tmp_path / "suites"
    suites.mkdir(mode=0o700)
    never = {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 1_000}}
    (suites / "rows.json").write_text(json.dumps({"name": "rows", "expectations": [never]}))
    registry = tmp_path / "tables.toml"
    entry = f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n"
    monkeypatch.setenv("MAINTENANCE_TABLES", str(registry))
    chosen, opened = CycleTable(label="people", table="people", ignore_pauses=False), Table.open(table.uri)

    def executed(name: str, job: str) -> Any:
        step = CycleStepWork(task_id=name, step=name, job=job, table=chosen, jobs_folder=str(ROOT / "jobs"))
        try:
            return step.execute(_context())
        finally:
            if step._hook is not None and step._hook._submit_sp is not None:
                step._hook._submit_sp.stdout.close()  # The provider leaves it open.

    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "0")
    registry.write_text(entry)
    merged = executed("merge", "merge")

    assert (merged["outcome"], merged["result"]["facts"]["rows"]) == ("done", 2)
    assert opened.to_arrow().num_rows == 7
    assert opened.status().merge_lag_generations == 0

    registry.write_text(f"{entry}checks = 'mandatory'\nsuites = ['rows.json']\n")
    with opened.writer() as writer:
        writer.put(people(7))
        writer.flush()
    assert executed("audit", "quality")["outcome"] == "blocked"
    assert executed("merge", "merge")["outcome"] == "partial"
    assert opened.status().merge_lag_generations == 1


def test_application_that_does_not_start_is_a_failure_of_its_job(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People were called every few minutes, the job never paused, and the cycle had found nothing to do."""
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "0")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("PATH", str(tmp_path))
    for hours in range(3):
        context = _context(started=STARTED + timedelta(hours=hours))
        begin_cycle(_chosen(table), holder_of(context))
        with pytest.raises(AirflowFailException, match="this worker has no spark-submit"):
            _step(table, "merge", "merge").execute(context)
        assert end_cycle(_chosen(table), holder_of(context)) == "failed"

    opened = Table.open(table.uri).opened
    failed = [(run.outcome, run.error) for run in opened.ledger.runs("merge")]
    assert failed == [(RunOutcome.FAILED, "InvalidRequestError")] * 3
    assert not opened.ledger.may_run(JobKey("merge")).allowed


def test_application_that_does_not_start_is_a_failure_although_its_run_did_the_job_before(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failed job was not recorded, and the cycle had nothing to do: in cleared runs, and of the second catch-up."""
    begin_cycle(_chosen(table), RUN)
    run_step("merge", _chosen(table), RUN)
    assert end_cycle(_chosen(table), RUN) == "done"
    with TableWriter.open(table) as writer:
        writer.put(people(7))
        writer.flush()
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_BYTES", "0")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[1]"}))
    monkeypatch.setenv("PATH", str(tmp_path))

    begin_cycle(_chosen(table), RUN)
    with pytest.raises(AirflowFailException, match="this worker has no spark-submit"):
        _step(table, "merge", "merge").execute(_context())

    assert end_cycle(_chosen(table), RUN) == "failed"
    ends = [run.outcome for run in Table.open(table.uri).opened.ledger.runs("merge")]
    assert ends == [RunOutcome.DONE, RunOutcome.FAILED]


def test_two_airflows_with_one_schedule_do_the_steps_of_a_table_by_turns(table: BaseTable) -> None:
    """Their runs have the same id: each took the other's lease for its own, fenced it, and called people."""
    other = _context(started=STARTED + timedelta(milliseconds=20))
    begin_cycle(_chosen(table), RUN)
    begin_cycle(_chosen(table), holder_of(other))
    opened = Table.open(table.uri).opened
    lease = opened.leases.acquire(JobKey("merge"), holder_of(_context()))

    with pytest.raises(AirflowSkipException, match="another process holds the lease"):
        _step(table, "merge", "merge").execute(other)

    lease.check()  # It is still the first one's, which goes on.
    assert _step(table, "merge", "merge").execute(_context(2))["outcome"] == "done"
    with pytest.raises(FencedError):  # What is left of its first try does not.
        lease.check()
    end_cycle(_chosen(table), RUN)
    end_cycle(_chosen(table), holder_of(other))
    ended = {run.holder: run.facts["steps"]["merge"] for run in opened.ledger.runs("maintain")}
    assert ended == {RUN: "done", holder_of(other): "nothing_to_do"}


def test_name_of_a_mapped_task_fits_into_airflows_database() -> None:
    """PostgreSQL refused the address of a table in a deep directory, and with it every task of the table."""
    address = f"s3://bucket/{'x' * 300}/people.lance"
    chosen = CycleTable(label=address, table=address, ignore_pauses=False)
    step = CycleStepWork(task_id="merge", step="merge", job="merge", table=chosen, jobs_folder="")
    work = LeasedWork(task_id="work", job="merge", item={"label": address}, jobs_folder="")

    labels = {label_of(chosen), step.label, work.label}

    assert len(labels) == 1
    assert re.fullmatch(r"s3://bucket/x+\.\.\.x+/people\.lance", label := labels.pop())
    assert len(label) == TaskInstance.__table__.c.rendered_map_index.type.length


def test_merge_whose_worker_died_before_its_task_ended_is_told_when_it_is_tried_again(table: BaseTable) -> None:
    """It was skipped: whoever waits for the change of the base table never heard of it."""
    begin_cycle(_chosen(table), RUN)
    run_step("merge", _chosen(table), RUN)
    context = _context(2)

    again = _step(table, "merge", "merge").execute(context)

    assert (again["outcome"], again["result"]["facts"]["rows"]) == ("done", 2)
    [told] = context["outlet_events"][BASE_TABLE].extra["tables"]
    assert (told["uri"], told["facts"]["rows"]) == (table.uri, 2)
    later = _context(2, started=STARTED + timedelta(hours=1))
    begin_cycle(_chosen(table), holder_of(later))
    with pytest.raises(AirflowSkipException):  # It is another cycle that merged.
        _step(table, "merge", "merge").execute(later)


def test_work_of_a_process_that_died_is_not_taken_for_none(table: BaseTable) -> None:
    begin_cycle(_chosen(table), RUN)
    opened = Table.open(table.uri).opened
    opened.ledger.begin(opened.new_run(JobKey("merge"), RUN))
    Table.open(table.uri).run(MergeRequest(), holder="another run")

    again = _step(table, "merge", "merge").execute(_context(2))

    assert (again["outcome"], again["result"]["facts"]) == ("conflict", {})


def test_indexes_follow_a_compaction_whose_worker_died(table: BaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compaction that was tried again had nothing to do, so indexes were left as Lance had made them."""
    monkeypatch.setenv("MEMWAL_COMPACT__MIN_FRAGMENTS", "2")
    table.dataset().insert(people(7, 8))
    begin_cycle(_chosen(table), RUN)
    run_step("compact", _chosen(table), RUN)

    again = _step(table, "compact", "compact").execute(_context(2))

    assert again["outcome"] == "done"
    with pytest.raises(AirflowSkipException) as skipped:
        _step(table, "catch_up_again", "catchup", again).execute(_context())
    assert "compact changed nothing" not in str(skipped.value)


def test_freeze_that_a_worker_found_before_it_died_fails_the_task_that_is_tried_again(table: BaseTable) -> None:
    """It was skipped, as the runs after one that has told people are, and nobody had been told."""
    begin_cycle(_chosen(table), RUN)
    opened = Table.open(table.uri).opened
    opened.ledger.begin(opened.new_run(JobKey("merge"), RUN))
    Table.open(table.uri).freeze("found by the run that died", by="merge")

    with pytest.raises(AirflowFailException, match="a person must thaw the table"):
        _step(table, "merge", "merge").execute(_context(2))
    with pytest.raises(AirflowSkipException, match="the table is frozen"):
        _step(table, "merge", "merge").execute(_context())
