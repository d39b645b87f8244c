"""Values of forms and of other tasks reach the work as they are, also when they look like templates."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from memwal_core.jobs.catalog import REQUESTS

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


def test_every_dag_of_every_job_is_looked_at_and_every_text_of_its_form(facts: dict[str, Any]) -> None:
    jobs = {request.info.name for request in REQUESTS if not request.info.by_hand}

    assert set(facts["forms"]) == {f"memwal_{job}" for job in jobs}
    assert {name for each in facts["forms"].values() for name in each["free"]} <= set(facts["given"])
    for each in facts["forms"].values():
        assert not any(each[name] for name in ("macros", "native", "search", "templates", "links")), each
        assert each["callbacks"] in ([], ["tell_timed_out"])


def test_nothing_else_of_a_task_is_a_template_or_is_called_with_one(facts: dict[str, Any]) -> None:
    """A new operator, link, callback or message has to be judged, and then named here."""
    written = facts["written"]

    assert {each["operator"] for each in written.values()} == {
        "CycleStepWork", "PlanWork", "LeasedWork", "VerifyWork", "HoldLeases", "ApprovalOperator",
        "TriggerDagRunOperator", "_PythonDecoratedOperator",
    }  # fmt: skip
    templates = {name: each["templates"] for name, each in written.items() if each["templates"]}
    labels = {text for each in templates.values() for text in each.get("map_index_template", ())}
    assert labels == {"{{ label }}", "{{ task.label }}"}
    others = {name for name, each in templates.items() if set(each) - {"map_index_template"}}
    assert others == {APPROVAL}
    assert set(templates[APPROVAL]) == {"subject"}
    assert {callback for each in written.values() for callback in each["callbacks"]} == {"tell_failure"}
    assert not any(message for each in written.values() for message in each["told"])
    assert not [name for name, each in written.items() if each["display"]]
    # Airflow's own link, to the run that a task triggered, and two of ours below Airflow's own address, which a table's
    # name is quoted in (test_links_lead_to_the_page_of_the_table_and_to_its_runbook).
    links = {link for each in written.values() for link in each["links"]}
    assert links <= {"TriggerDagRunLink", "TablePageLink", "RunbookLink"}
    assert all(each["pool"] in ("default_pool", None) or "{" not in each["pool"] for each in written.values())


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
