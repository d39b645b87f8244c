"""What tasks say about the tables that they changed, and who goes on with them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors, TriggeringAssetEventsAccessor

from memwal_core.airflow.assets import BASE_TABLE, INDEXES, tell_changes, triggering_events
from memwal_core.airflow.operators.plan_and_verify import PlanWork
from memwal_core.base_table import BaseTable
from memwal_core.errors import UnavailableError
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.airflow


def _told(*tables: str, in_cycle: bool) -> SimpleNamespace:
    """Return the event of a task, as ``tell_changes`` leaves it and Airflow hands it on."""
    said = OutletEventAccessors()
    changes = [{"table": table, "uri": f"/{table}"} for table in tables]
    tell_changes([BASE_TABLE], changes, {"outlet_events": said}, in_cycle=in_cycle)
    return SimpleNamespace(extra=json.loads(json.dumps(said[BASE_TABLE].extra)), asset=BASE_TABLE, source_aliases=())


def _context(*events: Any) -> Any:
    return {"triggering_asset_events": TriggeringAssetEventsAccessor.build(events), "params": {}}


def test_jobs_go_on_with_tables_that_runs_by_hand_changed_and_leave_those_of_cycles() -> None:
    context = _context(_told("orders", in_cycle=True), _told("people", "places", in_cycle=False))
    assert [each["table"] for each in triggering_events([BASE_TABLE], context)] == ["people", "places"]
    assert triggering_events([INDEXES], context) == []
    assert triggering_events([BASE_TABLE], {}) == []


@pytest.mark.parametrize(
    "extra",
    [
        {},
        *({"tables": odd} for odd in (None, "people", {"table": "people"}, ["people"], [{"uri": "people"}])),
        *({"tables": [{"table": odd}]} for odd in ("", None, 5)),
    ],
)
def test_event_of_another_dag_that_names_no_table_keeps_no_other_table_from_its_job(
    extra: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It was a KeyError or a TypeError in every try, or a table by the name of each letter."""
    odd = SimpleNamespace(extra=extra, asset=BASE_TABLE, source_aliases=())

    both = triggering_events([BASE_TABLE], _context(odd, _told("people", in_cycle=False)))

    assert [each["table"] for each in both] == ["people"]
    assert "an event names no table" in caplog.text
    operator = PlanWork(task_id="plan", job="catchup", jobs_folder="", starts=[BASE_TABLE], shows=False)
    with pytest.raises(AirflowSkipException, match="or no event names a table"):
        operator.execute(_context(odd))


def test_run_that_only_cycles_started_is_skipped() -> None:
    operator = PlanWork(task_id="plan", job="catchup", jobs_folder="", starts=[BASE_TABLE], shows=False)

    with pytest.raises(AirflowSkipException, match="cycles changed the tables"):
        operator.execute(_context(_told("orders", in_cycle=True)))


@pytest.mark.parametrize("lacking", ["gone", "down"])
def test_people_are_told_of_a_table_that_is_left_out_of_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    """One whose store was down for some minutes used up the attempts of the run, and the others' events were lost."""
    table, gone = make_people_table(str(tmp_path / "people.lance"), rows=people(1)), str(tmp_path / "gone.lance")
    operator = PlanWork(task_id="plan", job="snapshot", jobs_folder="", starts=[BASE_TABLE], shows=False)
    about = {"dag": SimpleNamespace(dag_id="memwal_snapshot", params={}), "run_id": "1"}
    run = {"dag_run": SimpleNamespace(logical_date=None, conf={}), "task": operator, **about}

    context = {**_context(_told(gone, table.uri, in_cycle=False)), **run}
    attempt = context["ti"] = SimpleNamespace(try_number=1, max_tries=4, dag_id="memwal_snapshot", task_id="plan")
    if lacking == "down":
        real = BaseTable.open

        def opened(uri: str, **options: Any) -> BaseTable:
            if uri == gone:
                raise UnavailableError("the store did not answer", remedy="try again", uri=uri)
            return real(uri, **options)

        monkeypatch.setattr(BaseTable, "open", opened)
        with pytest.raises(UnavailableError):
            operator.execute(context)
        attempt.try_number = 5

    [item] = operator.execute(context)

    assert item["table"] == table.uri
    [alert] = [record.getMessage() for record in caplog.records if record.name == "memwal.alerts"]
    assert alert.startswith(f"maintenance failed [table={gone}, ")
