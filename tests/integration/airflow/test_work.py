"""The operator that works under a lease, without servers: what it does before and after it waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from memwal_airflow.operators.work import LeasedWork
from memwal_core.admin import GcRequest, TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.errors import FencedError
from memwal_core.tasks.holding import give_up, hold
from memwal_core.tasks.steps import plan_step
from memwal_core.testing.garbage import drop_old_versions
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter

pytestmark = [pytest.mark.airflow]

RUN = "memwal_gc/manual__1"
CHANGED = Asset(name="changed", uri="memwal://changed")


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BaseTable:
    """Two flushed MemTables that are merged and that nothing needs."""
    monkeypatch.setenv("MEMWAL_GC__GRACE_S", "1")
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    with TableWriter.open(made) as writer:
        for number in (3, 4):
            writer.put(people(number))
            writer.flush()
    TableAdmin.open(made.uri).merge()
    drop_old_versions(made.uri)
    return made


def work(table: BaseTable, **params: object) -> LeasedWork:
    asked = {"table": table.uri, "dry_run": False, "storage_options": {}, "storage_connection": None, **params}
    [item] = hold(plan_step("gc", asked), RUN)
    return LeasedWork(task_id="work", item=item, outlets=[CHANGED])


def context() -> Any:
    return {
        "dag": SimpleNamespace(dag_id="memwal_gc"),
        "run_id": "manual__1",
        "outlet_events": {CHANGED: SimpleNamespace(extra={})},
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
    assert given["outlet_events"][CHANGED].extra == result
    assert [run.outcome.value for run in TableAdmin.open(table.uri).insight.ledger.runs("gc")] == ["done", "done"]


def test_collection_that_airflow_runs_again_in_the_middle_waits_again(table: BaseTable) -> None:
    operator = work(table, wait=True)
    with pytest.raises(TaskDeferred):
        operator.execute(context())
    assert plan_step("gc", operator.item["params"])  # so does a new run that is asked to wait

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
    hold([operator.item], RUN)  # a cleared task takes the lease of its own run anew

    event = event_of(deferred.value)
    assert event["fenced"] is True
    with pytest.raises(FencedError):
        operator.resume(context(), event)
    assert directories(table) == 2


def test_work_that_somebody_else_did_is_skipped(table: BaseTable) -> None:
    planned = work(table).item
    give_up([planned])
    TableAdmin.open(table.uri).collect_garbage(GcRequest(dry_run=False))
    [item] = hold([planned], RUN)

    with pytest.raises(AirflowSkipException):
        LeasedWork(task_id="work", item=item).execute(context())
