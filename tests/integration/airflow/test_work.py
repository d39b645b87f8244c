"""The operator that works under a lease, without servers: what it does before and after it waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskDeferred

from memwal_core.airflow.operators.leases import HoldLeases
from memwal_core.airflow.operators.work import LeasedWork
from memwal_core.airflow.tasks.work import hold_leases, plan_work, release_leases
from memwal_core.base_table import BaseTable
from memwal_core.coordination.lease import parse_ticket
from memwal_core.errors import FencedError
from memwal_core.jobs.document import JobDocument, parse_job
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.table import Table
from testkit.tables.garbage import merged_table_of_garbage

pytestmark = [pytest.mark.airflow]

RUN = "memwal_gc/manual__1"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BaseTable:
    monkeypatch.setenv("MEMWAL_GC__GRACE_S", "1")
    return merged_table_of_garbage(str(tmp_path / "people.lance"))


def work(table: BaseTable, **params: object) -> LeasedWork:
    asked = {"table": table.uri, "dry_run": False, **params}
    [item] = hold_leases(plan_work("gc", asked), RUN)
    return LeasedWork(task_id="work", job="gc", item=item, jobs_folder="")


def context() -> Any:
    return {
        "dag": SimpleNamespace(dag_id="memwal_gc"),
        "run_id": "manual__1",
        "dag_run": SimpleNamespace(start_date=None),
    }


def directories(table: BaseTable) -> int:
    return sum(1 for path in (Path(table.uri) / "_mem_wal").glob("*/*_gen_*") if any(path.rglob("*.manifest")))


def event_of(deferred: TaskDeferred) -> dict[str, Any]:
    """Return what the trigger says, as it comes back from Airflow's database."""
    deferred.trigger.poll_s = 0.05

    async def first() -> dict[str, Any]:
        return dict((await anext(deferred.trigger.run())).payload)

    return dict(json.loads(json.dumps(asyncio.run(first()))))


def test_collection_that_waits_deletes_what_it_drained_in_the_same_run(table: BaseTable) -> None:
    operator, given = work(table, wait=True), context()

    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(given)

    assert directories(table) == 2
    assert deferred.value.method_name == "resume"
    result = operator.resume(given, event_of(deferred.value))
    assert directories(table) == 0
    assert (result["outcome"], result["due_at"]) == ("done", "")
    assert "flushed_memtable" in result["facts"]["before_waiting"]["done"]
    assert "directory" in result["facts"]["done"]
    assert [run.outcome.value for run in Table.open(table.uri).opened.ledger.runs("gc")] == ["done", "done"]


def test_collection_that_airflow_runs_again_in_the_middle_waits_again(table: BaseTable) -> None:
    operator = work(table, wait=True)
    with pytest.raises(TaskDeferred):
        operator.execute(context())
    assert plan_work("gc", {"table": table.uri, **operator.item["request"]})  # so does a new run that is asked to wait

    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context())

    assert operator.resume(context(), event_of(deferred.value))["outcome"] == "done"
    assert directories(table) == 0


def test_collection_that_was_not_asked_to_wait_leaves_directories_to_a_later_run(table: BaseTable) -> None:
    result = work(table).execute(context())

    assert result["outcome"] == "done"
    assert result["due_at"]
    assert directories(table) == 2


def test_collection_whose_lease_is_taken_while_it_waits_deletes_nothing(table: BaseTable) -> None:
    operator = work(table, wait=True)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context())
    hold_leases([operator.item], RUN)  # a cleared task takes the lease of its own run anew

    event = event_of(deferred.value)
    assert event["fenced"] is True
    with pytest.raises(AirflowFailException, match="fenced") as failed:
        operator.resume(context(), event)
    assert isinstance(failed.value.__cause__, FencedError)
    assert directories(table) == 2
    assert [run.outcome.value for run in Table.open(table.uri).opened.ledger.runs("gc")] == ["done", "fenced"]


def test_work_that_somebody_else_did_is_skipped(table: BaseTable) -> None:
    planned = work(table).item
    release_leases([planned])
    Table.open(table.uri).run(GcRequest(dry_run=False))
    [item] = hold_leases([planned], RUN)

    with pytest.raises(AirflowSkipException):
        LeasedWork(task_id="work", job="gc", item=item, jobs_folder="").execute(context())


@pytest.mark.req("O10")
def test_work_of_an_earlier_attempt_is_verified_although_nothing_is_left(table: BaseTable) -> None:
    """A worker may die between its commit and the end of its task: what waits for the change must still hear of it."""
    item = work(table).item
    LeasedWork(task_id="work", job="gc", item=item, jobs_folder="").execute(context())
    again = {**context(), "ti": SimpleNamespace(try_number=2)}

    result = LeasedWork(task_id="work", job="gc", item=item, jobs_folder="").execute(again)

    assert result["outcome"] == "nothing_to_do"


@pytest.mark.req("O10")
def test_large_collection_is_handed_to_spark_and_waits_without_it(
    table: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, garbage was collected by Airflow's worker, however many objects there were."""
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_OBJECTS", "3")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[1]"}')
    handed: list[JobDocument] = []

    def submitted(operator: SparkSubmitOperator, _: object) -> None:
        """Run the application's job here, as its driver would."""
        document = parse_job(operator._hook.submit.keywords["env"]["MAINTENANCE_JOB"])
        assert Path(operator.application).name == "gc.py"
        Table.open(document.uri).run(document.parsed(), holder=document.holder, ticket=parse_ticket(document.ticket))
        handed.append(document)

    monkeypatch.setattr(SparkSubmitOperator, "execute", submitted)
    monkeypatch.setattr("memwal_core.airflow.tasks.work.do_work", None)
    operator = work(table, wait=True)

    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context())
    result = operator.resume(context(), event_of(deferred.value))

    assert operator.item["where"].endswith("objects are more than dispatch.max_objects, which is 3")
    assert [document.request.get("wait", False) for document in handed] == [False, False]
    assert {document.holder for document in handed} == {RUN}
    assert (result["outcome"], result["due_at"], directories(table)) == ("done", "", 0)
    assert "flushed_memtable" in result["facts"]["before_waiting"]["done"]


def test_a_collection_is_not_done_by_the_task_of_another_job(table: BaseTable) -> None:
    """Whoever may change results of tasks would collect garbage without the approval that its own DAG asks for."""
    [item] = hold_leases(plan_work("gc", {"table": table.uri, "dry_run": False}), RUN)
    before = directories(table)
    other = LeasedWork(task_id="work", job="snapshot", item=item, jobs_folder="")

    for step in (
        lambda: other.execute(context()),
        lambda: other.resume(context(), {"fenced": False, "begun": {}}),
        lambda: HoldLeases(task_id="hold", job="snapshot", items=[item]).execute(context()),
    ):
        with pytest.raises(AirflowFailException, match="one job only"):
            step()
    assert directories(table) == before > 0
