"""Values of forms and of other tasks reach the work as they are, also when they look like templates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

APPROVAL = "memwal_gc.approve"
"""The only task with a template of its own: its question names the table."""


@pytest.fixture(scope="module")
def facts(airflow_variables: Mapping[str, str]) -> dict[str, Any]:
    script = Path(__file__).with_name("hostile_fields.py")
    ran = subprocess.run(
        [sys.executable, str(script), airflow_variables["AIRFLOW__CORE__DAGS_FOLDER"]],
        env={**airflow_variables, "MAINTENANCE_GC_APPROVAL": "true"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    return dict(json.loads(line.removeprefix("FACTS ")))


def test_values_that_look_like_templates_are_handed_on_unchanged(facts: dict[str, Any]) -> None:
    tasks = {name: each for name, each in facts["tasks"].items() if name != APPROVAL}

    assert facts["import_errors"] == {}
    assert {name.partition(".")[0] for name in tasks} >= {"memwal_merge", "memwal_gc", "memwal_maintain"}
    assert {name: each["after"] for name, each in tasks.items()} == {
        name: each["before"] for name, each in tasks.items()
    }
    # Not because nothing was handed on: these tasks were given such values.
    given = {
        name for name, each in tasks.items() if all(json.dumps(text) in each["after"] for text in facts["hostile"])
    }
    jobs = {name.partition(".")[0] for name in tasks} - {"memwal_maintain"}
    assert {f"{dag}.{task}" for dag in jobs for task in ("hold", "work", "verify", "release")} <= given
    assert {"memwal_maintain.cycle.merge", "memwal_maintain.cycle.snapshot", "memwal_ingest.start_merge"} <= given


def test_question_to_a_person_names_the_table_and_renders_it_once(facts: dict[str, Any]) -> None:
    asked = json.loads(facts["tasks"][APPROVAL]["after"])

    assert asked["subject"] == f"May gc change {facts['hostile'][0]}?"


def test_names_of_mapped_tasks_are_not_rendered_twice(facts: dict[str, Any]) -> None:
    labels = {name: each["label"] for name, each in facts["tasks"].items() if each["label"] is not None}

    assert {"memwal_merge.work", "memwal_gc.work", "memwal_maintain.cycle.merge"} <= set(labels)
    assert set(labels.values()) == {facts["hostile"][1]}


def test_the_same_values_are_carried_out_where_a_field_is_a_template(facts: dict[str, Any]) -> None:
    assert facts["secret"] in facts["control"]["after"]
    assert facts["secret"] not in json.dumps(facts["tasks"])
