"""What tasks say about the tables that they changed, and who goes on with them."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from memwal_core.airflow.assets import BASE_TABLE, INDEXES, tell_changes, triggering_events
from memwal_core.airflow.operators.around import PlanWork
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = pytest.mark.airflow


def _told(*tables: str, in_cycle: bool) -> SimpleNamespace:
    """Return the event of a task, as ``tell_changes`` leaves it and Airflow hands it on."""
    said = SimpleNamespace(extra=None)
    changes = [{"table": table, "uri": f"/{table}"} for table in tables]
    tell_changes([BASE_TABLE], changes, {"outlet_events": {BASE_TABLE: said}}, in_cycle=in_cycle)
    return SimpleNamespace(extra=json.loads(json.dumps(said.extra)))


def _context(**params: object) -> dict[str, Any]:
    events = [_told("orders", in_cycle=True), _told("people", "places", in_cycle=False)]
    return {"triggering_asset_events": {BASE_TABLE: events}, "params": params}


def test_jobs_go_on_with_tables_that_runs_by_hand_changed_and_leave_those_of_cycles() -> None:
    assert [each["table"] for each in triggering_events([BASE_TABLE], _context())] == ["people", "places"]
    assert triggering_events([INDEXES], _context()) == []
    assert triggering_events([BASE_TABLE], {}) == []


def test_run_that_only_cycles_started_is_skipped() -> None:
    operator = PlanWork(task_id="plan", job="catchup", jobs_folder="", starts=[BASE_TABLE], shows=False)
    context: Any = {"triggering_asset_events": {BASE_TABLE: [_told("orders", in_cycle=True)]}, "params": {}}

    with pytest.raises(AirflowSkipException, match="cycles changed the tables"):
        operator.execute(context)


@pytest.mark.slow
def test_cycle_changes_the_assets_that_runs_by_hand_change(
    tmp_path: Path,
    airflow_variables: Mapping[str, str],
    run_dag: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(50)))
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40, 90)))
        writer.flush()
    registry = tmp_path / "tables.toml"
    registry.write_text(f"[[tables]]\nname = 'evented'\nuri = '{table.uri}'\n")

    ran = run_dag({}, "memwal_maintain", MAINTENANCE_TABLES=str(registry))

    assert ran.returncode == 0, ran.stdout
    with closing(sqlite3.connect(Path(airflow_variables["AIRFLOW_HOME"]) / "airflow.db")) as database:
        found = database.execute(
            "SELECT asset.name, asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_event.asset_id"
        ).fetchall()
    told = {name: json.loads(extra) for name, extra in found if "evented" in extra}
    assert set(told) == {"memwal_base_table", "memwal_indexes"}
    assert all(extra["in_cycle"] for extra in told.values())
    [merged] = told["memwal_base_table"]["tables"]
    assert (merged["table"], merged["uri"], merged["summary"]) == ("evented", table.uri, "done")
    assert merged["facts"]["rows"] == 50
