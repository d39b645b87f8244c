"""What tasks say about the tables that they changed, and who goes on with them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessors, TriggeringAssetEventsAccessor

from memwal_core.airflow.assets import BASE_TABLE, INDEXES, tell_changes, triggering_events
from memwal_core.airflow.operators.around import PlanWork

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


def test_run_that_only_cycles_started_is_skipped() -> None:
    operator = PlanWork(task_id="plan", job="catchup", jobs_folder="", starts=[BASE_TABLE], shows=False)

    with pytest.raises(AirflowSkipException, match="cycles changed the tables"):
        operator.execute(_context(_told("orders", in_cycle=True)))
