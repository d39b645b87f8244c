"""The DAG files: they load anywhere and fast, say what they are, and refuse wrong parameters."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import memwal_core.airflow
from memwal_core.errors import CorruptionError, FencedError, InternalError, InvalidRequestError
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.ingest.request import IngestRequest

pytestmark = pytest.mark.airflow

DAGS = {
    "memwal_ingest", "memwal_flush", "memwal_merge", "memwal_catchup", "memwal_compact", "memwal_snapshot", "memwal_gc",
    "memwal_verify", "memwal_quality", "memwal_maintain",
}  # fmt: skip
COMPAT = {
    "AirflowException", "AirflowFailException", "AirflowNotFoundException", "AirflowSkipException",
    "DownstreamTasksSkipped", "TaskDeferred",
}  # fmt: skip
"""What version 1.12 of the provider common.compat has: the oldest one that the Spark provider takes."""

OF_AIRFLOW = {"ApprovalOperator", "TriggerDagRunOperator"}
REGION = "1c0c1b90-0fbc-49c1-99ed-67223e52e103"
GOOD = [
    {"table": "people.lance"},
    {"table": "s3://bucket/people.lance", "regions": [REGION], "max_bytes": 1 << 26, "dry_run": True},
]
BAD = [
    ({}, "table"),
    ({"table": ""}, "table"),
    ({"table": 7}, "table"),
    ({"table": "t", "dry_run": "yes"}, "dry_run"),
    ({"table": "t", "regions": "all"}, "regions"),
    ({"table": "t", "regions": ["region 1"]}, "regions"),
    ({"table": "t", "regions": [REGION, REGION]}, "regions"),
    ({"table": "t", "max_bytes": 10}, "max_bytes"),
    ({"table": "t", "max_bytes": "1 GiB"}, "max_bytes"),
]


@pytest.fixture(scope="module")
def facts(airflow_variables: Mapping[str, str]) -> dict[str, Any]:
    configurations = [*GOOD, *(configuration for configuration, _ in BAD)]
    more = {"MAINTENANCE_RETRIES": "", "MAINTENANCE_RUNBOOKS": "https://wiki.example/runbooks"}
    return _read({**airflow_variables, **more}, configurations)


def _read(variables: Mapping[str, str], configurations: list[dict[str, Any]]) -> dict[str, Any]:
    script = Path(__file__).with_name("dag_facts.py")
    ran = subprocess.run(
        [sys.executable, str(script), variables["AIRFLOW__CORE__DAGS_FOLDER"]],
        env=dict(variables),
        input=json.dumps(configurations),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    [line] = [line for line in ran.stdout.splitlines() if line.startswith("FACTS ")]
    return json.loads(line.removeprefix("FACTS "))


def test_dags_load_without_lance_arrow_and_spark_and_quickly(facts: dict[str, Any]) -> None:
    assert facts["import_errors"] == {}
    assert set(facts["dags"]) == DAGS
    assert {"lance", "pyarrow", "datafusion", "great_expectations"}.isdisjoint(facts["loaded_by_airflow"])
    assert facts["loaded"] == []
    assert facts["seconds"] < 1


def test_every_dag_and_task_is_documented_owned_and_retried(facts: dict[str, Any]) -> None:
    for name, dag in facts["dags"].items():
        assert "safe" in dag["doc"], name
        assert "runbooks" in dag["doc"], name
        assert dag["description"]
        assert "memwal" in dag["tags"]
        for task_name, task in dag["tasks"].items():
            assert task["doc"], task_name
            assert task["owner"] not in ("", "airflow")
            assert task["retries"] >= 1
            assert task["backoff"] in (2, True)  # Airflow 3.1 knows only whether it waits twice as long each time
            assert task["fails_at_once"] or task["operator"] in OF_AIRFLOW
            assert task["tells"] == ["tell_failure"]
            assert task["map_index"], (name, task_name)
            assert task["pool"] == "default_pool"


@pytest.mark.req("MRG-26")
def test_one_merge_of_a_table_runs_at_a_time_and_is_verified(facts: dict[str, Any]) -> None:
    dag = facts["dags"]["memwal_merge"]

    assert dag["at_once"] == 1
    assert dag["tasks"]["work"]["at_once"] == 1
    assert dag["tasks"]["work"]["upstream"] == ["hold"]
    assert dag["tasks"]["verify"]["upstream"] == ["plan", "work"]
    assert dag["tasks"]["verify"]["outlets"] == ["memwal_base_table"]
    assert dag["tasks"]["verify"]["trigger_rule"] == "none_failed_min_one_success"


def test_ingestion_is_verified_and_says_which_regions_have_new_rows(facts: dict[str, Any]) -> None:
    dag = facts["dags"]["memwal_ingest"]

    assert dag["at_once"] == 1
    assert dag["dry_run"] is False
    assert dag["tasks"]["work"]["at_once"] == 1
    assert dag["tasks"]["work"]["upstream"] == ["hold"]
    assert dag["tasks"]["verify"]["upstream"] == ["plan", "work"]
    assert dag["tasks"]["verify"]["outlets"] == ["memwal_regions"]
    assert dag["tasks"]["verify"]["trigger_rule"] == "none_failed_min_one_success"
    assert dag["tasks"]["merge_parameters"]["upstream"] == ["verify"]
    assert dag["tasks"]["start_merge"]["upstream"] == ["merge_parameters"]


def test_every_job_has_a_dag_that_runs_once_at_a_time(facts: dict[str, Any]) -> None:
    assert set(facts["dags"]) == DAGS
    assert {facts["dags"][name]["at_once"] for name in DAGS - {"memwal_maintain"}} == {1}


@pytest.mark.req("O6")
def test_every_task_and_run_ends_and_a_stuck_cycle_keeps_no_other_table_waiting(facts: dict[str, Any]) -> None:
    """Before, one table's stuck run queued the runs of all tables for ever."""
    for name, dag in facts["dags"].items():
        assert dag["ends"] == 24 * 3600, name
        assert all(0 < task["ends"] <= 6 * 3600 for task in dag["tasks"].values()), name
    assert facts["dags"]["memwal_maintain"]["at_once"] > 1


def test_what_a_person_waits_for_comes_before_cycles_and_merges_of_all_tables_before_collections(
    facts: dict[str, Any],
) -> None:
    steps = {name: task["priority"] for name, task in facts["dags"]["memwal_maintain"]["tasks"].items()}

    assert min(
        task["priority"] for name in DAGS - {"memwal_maintain"} for task in facts["dags"][name]["tasks"].values()
    ) > max(steps.values())
    assert steps["cycle.merge"] > steps["cycle.catch_up"] > steps["cycle.collect_garbage"]


@pytest.mark.parametrize("name", sorted(DAGS - {"memwal_maintain"}))
@pytest.mark.req("LEASE-42")
def test_lease_is_taken_before_the_work_and_given_back_after_it(facts: dict[str, Any], name: str) -> None:
    tasks = facts["dags"][name]["tasks"]

    assert tasks["hold"]["is_setup"]
    assert tasks["release"]["is_teardown"]
    assert tasks["hold"]["upstream"] == ["plan"]
    assert tasks["work"]["upstream"] == ["hold"]
    assert {"hold", "work", "verify"} <= set(tasks["release"]["upstream"])
    assert tasks["verify"]["trigger_rule"] == "none_failed_min_one_success"
    assert tasks["verify"]["upstream"] == ["plan", "work"]


def test_changed_tables_start_the_jobs_that_follow(facts: dict[str, Any]) -> None:
    schedules = {name: dag["schedule"] for name, dag in facts["dags"].items()}

    assert schedules == {
        "memwal_ingest": None,
        "memwal_flush": None,
        "memwal_merge": None,
        "memwal_catchup": ["memwal_base_table"],
        "memwal_snapshot": ["memwal_indexes"],
        "memwal_gc": ["memwal_indexes"],
        "memwal_verify": None,
        "memwal_quality": ["memwal_base_table"],
        "memwal_compact": None,
        "memwal_maintain": None,
    }
    changes = {
        name: outlets
        for name, dag in facts["dags"].items()
        if (outlets := {asset for task in dag["tasks"].values() for asset in task["outlets"]})
    }
    assert changes == {
        "memwal_ingest": {"memwal_regions"},
        "memwal_flush": {"memwal_regions"},
        "memwal_merge": {"memwal_base_table"},
        "memwal_catchup": {"memwal_indexes"},
        "memwal_maintain": {"memwal_regions", "memwal_base_table", "memwal_indexes"},
    }
    assert facts["dags"]["memwal_catchup"]["tasks"]["verify"]["outlets"] == ["memwal_indexes"]


def test_only_garbage_collection_is_a_dry_run_unless_it_is_asked_for(facts: dict[str, Any]) -> None:
    dry = {name: facts["dags"][name]["dry_run"] for name in DAGS - {"memwal_maintain"}}

    assert {name for name, value in dry.items() if value} == {"memwal_gc"}


def test_cycle_is_in_the_order_in_which_jobs_need_each_other(facts: dict[str, Any]) -> None:
    tasks = facts["dags"]["memwal_maintain"]["tasks"]
    assert tasks["cycle.flush"]["upstream"] == ["cycle.begin", "tables"]
    assert "cycle.collect_garbage" in tasks["cycle.end"]["upstream"]
    steps = ["flush", "audit", "merge", "verify", "catch_up", "check", "compact", "catch_up_again",
             "snapshot", "collect_garbage"]  # fmt: skip

    for before, after in itertools.pairwise(steps):
        assert f"cycle.{before}" in tasks[f"cycle.{after}"]["upstream"]
    # Those that the first task may have skipped while earlier ones work: what comes after waits for these, too.
    for before, skipped, after in zip(steps, steps[1:], steps[2:], strict=False):
        if skipped in ("audit", "verify", "check"):
            assert f"cycle.{before}" in tasks[f"cycle.{after}"]["upstream"]
    # A step with nothing to do is skipped, which must not skip the next.
    rules = {step: tasks[f"cycle.{step}"]["trigger_rule"] for step in steps[1:]}
    # What follows compaction needs no task where compaction was skipped.
    assert rules.pop("catch_up_again") == "all_success"
    assert set(rules.values()) == {"none_failed"}


@pytest.mark.req("O10")
def test_dags_of_all_jobs_have_the_same_shape_and_their_work_may_go_to_spark(facts: dict[str, Any]) -> None:
    """What happens on Spark is the plan's to say; no job of a DAG works in a worker whatever its size."""
    own = ("plan", "hold", "work", "verify", "release")
    same = ("operator", "upstream", "trigger_rule", "at_once", "is_setup", "is_teardown", "may_use_spark")
    shapes = {
        name: {task: {key: dag["tasks"][task][key] for key in same} for task in own}
        for name, dag in facts["dags"].items()
        if name != "memwal_maintain"
    }

    assert len(shapes) == len(DAGS) - 1
    assert all(shape == shapes["memwal_merge"] for shape in shapes.values()), shapes
    # What a plan or a verification reads may grow with the table, too.
    assert all(shapes["memwal_merge"][task]["may_use_spark"] for task in ("plan", "work", "verify"))
    more = {task for name in shapes for task in facts["dags"][name]["tasks"]} - set(own)
    assert more == {"merge_parameters", "start_merge"}
    cycle = facts["dags"]["memwal_maintain"]["tasks"]
    steps = [name for name in cycle if name.startswith("cycle.") and name not in ("cycle.begin", "cycle.end")]
    assert len(steps) == 10
    assert all(cycle[name]["may_use_spark"] for name in steps)


@pytest.mark.req("BLD-01")
def test_snapshots_are_built_on_a_schedule_and_after_indexes_have_changed(
    airflow_variables: Mapping[str, str],
) -> None:
    dags = _read({**airflow_variables, "MAINTENANCE_SCHEDULE": "*/5 * * * *"}, [])["dags"]

    assert dags["memwal_maintain"]["schedule"] == "*/5 * * * *"
    assert "cycle.snapshot" in dags["memwal_maintain"]["tasks"]
    assert dags["memwal_snapshot"]["schedule"] == ["memwal_indexes"]


def test_pools_and_approval_come_when_they_are_configured(airflow_variables: Mapping[str, str]) -> None:
    facts = _read({**airflow_variables, "MAINTENANCE_POOLS": "true", "MAINTENANCE_GC_APPROVAL": "true"}, [])

    pools = json.loads((Path(airflow_variables["AIRFLOW__CORE__DAGS_FOLDER"]) / "pools.json").read_text())
    used = {task["pool"] for dag in facts["dags"].values() for task in dag["tasks"].values()}
    assert used - {"default_pool"} <= set(pools)
    assert {"memwal_ingest", "memwal_merge", "memwal_catchup", "memwal_compact", "memwal_snapshot", "memwal_gc"} <= used
    assert facts["dags"]["memwal_gc"]["ends"] is None  # people may answer whenever they like
    gc = facts["dags"]["memwal_gc"]["tasks"]
    assert gc["approve"]["ends"] is None
    assert gc["approve"]["upstream"] == ["plan"]
    assert "approve" in gc["hold"]["upstream"]


def test_jobs_are_found_beside_the_dag_folder(facts: dict[str, Any]) -> None:
    on_spark = {path.stem for path in Path(facts["jobs"]).glob("*.py")}

    by_hand = {request.info.name for request in REQUESTS if request.info.by_hand}
    assert on_spark == {name.removeprefix("memwal_") for name in DAGS} | by_hand


def test_only_the_page_is_a_plugin(facts: dict[str, Any]) -> None:
    plugins = facts["plugins"]

    assert (plugins["names"], plugins["errors"]) == (["memwal_page"], {})
    assert plugins["of_the_package"] == [["memwal_page"], {}]
    assert plugins["loose"] == []  # Airflow would load each file as a module of its own name


def test_every_field_of_every_form_says_what_it_is(facts: dict[str, Any]) -> None:
    for dag in facts["dags"].values():
        for name, field in dag["params"].items():
            assert field["title"], name
            assert field["title"][0].isupper()
            assert field["description"].endswith("."), name
            assert field["type"]
            # Airflow's form knows neither; a field that has one is a bare text.
            assert not {"anyOf", "$ref", "$defs"} & set(field), name


def test_forms_have_the_fields_of_the_request_between_table_and_storage(facts: dict[str, Any]) -> None:
    for request in REQUESTS:
        if request is MaintainRequest or request.info.by_hand:
            continue
        own = [*request.model_fields, *(["then_merge"] if request is IngestRequest else [])]
        names = list(facts["dags"][f"memwal_{request.info.name}"]["params"])
        assert names[0] == "table"
        assert sorted(names[1:]) == sorted(own)


def test_table_may_be_left_empty_only_where_a_change_starts_the_run(facts: dict[str, Any]) -> None:
    optional = {
        name for name, dag in facts["dags"].items() if "null" in as_list(dag["params"].get("table", {}).get("type"))
    }

    assert optional == {name for name, dag in facts["dags"].items() if isinstance(dag["schedule"], list)}


@pytest.mark.parametrize(
    ("dag", "name", "expected"),
    [
        ("memwal_ingest", "format", {"type": ["null", "string"], "value": None,
                                     "enum": [None, "parquet", "csv", "json", "lance", "table"]}),
        ("memwal_ingest", "takeover", {"type": "string", "value": "fail", "enum": ["fail", "fence"],
                                       "section": "Regions"}),
        ("memwal_ingest", "batch", {"type": ["null", "string"], "value": None, "section": "Batch"}),
        ("memwal_ingest", "sources", {"type": "array", "value": None, "minItems": 1}),
        ("memwal_ingest", "spec", {"type": ["null", "integer"], "minimum": 1, "section": "Regions"}),
        ("memwal_ingest", "options", {"type": "object", "value": {}, "additionalProperties": {"type": "string"}}),
        ("memwal_merge", "max_bytes", {"type": ["null", "integer"], "value": None, "minimum": 1 << 20,
                                       "maximum": 1 << 40, "section": "Bounds", "title": "Bytes per commit"}),
        ("memwal_merge", "regions", {"type": "array", "value": [], "uniqueItems": True, "section": "Bounds"}),
        ("memwal_quality", "stage", {"type": "string", "value": "after", "enum": ["before", "after", "both"]}),
        ("memwal_quality", "docs", {"type": ["null", "string"], "value": None, "section": "Checks"}),
        ("memwal_gc", "dry_run", {"type": "boolean", "value": True}),
        ("memwal_gc", "wait", {"type": "boolean", "value": False}),
    ],
)  # fmt: skip
def test_field_of_a_form_is_that_of_its_request(
    facts: dict[str, Any], dag: str, name: str, expected: dict[str, Any]
) -> None:
    field = facts["dags"][dag]["params"][name]

    assert {key: field[key] for key in expected} == expected


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_right_parameters_are_accepted(facts: dict[str, Any]) -> None:
    assert facts["wrong"][: len(GOOD)] == [None] * len(GOOD)


@pytest.mark.parametrize("number", range(len(BAD)))
def test_wrong_parameter_is_refused_by_name(facts: dict[str, Any], number: int) -> None:
    configuration, name = BAD[number]

    wrong = facts["wrong"][len(GOOD) + number]

    assert wrong is not None, configuration
    assert wrong.startswith(f"Invalid input for param {name}:")


def test_only_failures_that_pass_by_themselves_are_tried_again(facts: dict[str, Any]) -> None:
    verdict = "Cannot execute: spark-submit ['jobs/merge.py']. Error code is: {}."
    assert facts["given_up"] == {
        "1": None,
        "2": f"correct the input and trigger the run again: {verdict.format(2)}",
        "3": None,
        "4": None,
        "5": f"no retry can mend this: {verdict.format(5)}",
        "error of ours": "no retry can mend this: damaged",
        "of a Spark job": "no retry can mend this: some regions cannot be merged "
        "[regions={'1c0c1b90-0fbc-49c1-99ed-67223e52e103': 'blocked: hole'}] "
        "next: follow docs/runbooks/generation-hole.md",
        "fenced": "fenced: somebody else has the lease, and does the work",
        "anything else": None,
    }


def test_alert_names_table_region_verdict_and_runbook(facts: dict[str, Any]) -> None:
    ours, of_spark, of_stuck_merge, of_killed, forged = facts["alerts"]

    assert ours == (
        "ERROR maintenance failed [table=orders, region=1c0c1b90, "
        "verdict=a generation is missing; next: follow docs/runbooks/generation-hole.md, "
        "runbook=https://wiki.example/runbooks/generation-hole.md, dag=memwal_merge, task=merge]"
    )
    assert "table=people" in of_spark
    assert "Error code is: 4" in of_spark
    assert "runbook=https://wiki.example/runbooks/job-failures.md" in of_spark
    assert facts["tables_of_alerts"] == ["orders", "orders, people", *["orders"] * 4, None]
    assert "verdict=Airflow ended the task, which said nothing itself" in of_killed
    assert forged.startswith("ERROR maintenance failed [table=a ERROR maintenance failed [table=b,  xxx")
    assert forged.isprintable()
    assert len(forged) < 4300
    assert of_stuck_merge == (
        "ERROR maintenance failed [table=orders, region=1c0c1b90-0fbc-49c1-99ed-67223e52e103, "
        "verdict=some regions cannot be merged [regions={'1c0c1b90-0fbc-49c1-99ed-67223e52e103': 'blocked: hole'}] "
        "next: follow docs/runbooks/generation-hole.md, "
        "runbook=https://wiki.example/runbooks/generation-hole.md, dag=memwal_merge, task=merge]"
    )


def test_names_are_taken_from_the_compat_provider_only_if_its_oldest_version_has_them() -> None:
    """Beside one below 1.22 no task could read a connection: it ended in an ImportError."""
    roots = (Path(memwal_core.airflow.__file__).parent, Path(memwal_core.__file__).parents[1] / "dags")
    trees = [ast.parse(path.read_text()) for root in roots for path in root.rglob("*.py")]
    named = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    taken = {each.name for node in named if node.module == "airflow.providers.common.compat.sdk" for each in node.names}

    assert "AirflowSkipException" in taken
    assert taken <= COMPAT


def test_exit_codes_in_the_dags_are_those_of_the_errors(facts: dict[str, Any]) -> None:
    needs_a_human = {error.exit_code for error in (CorruptionError, FencedError, InternalError)}

    assert facts["exit_codes"] == [InvalidRequestError.exit_code, *needs_a_human]
    assert facts["fenced"] == FencedError.__name__
