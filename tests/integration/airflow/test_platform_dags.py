"""The DAGs around the merge on real tables: one chain, a fenced run, a refused table."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.jobs.cycle.plan import StepName
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Two indexes that are behind the merge."""
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(50)))
    for column in ("name", "score"):
        made.dataset().create_scalar_index(column, "BTREE", name=f"{column}_idx")
    with TableWriter.open(made) as writer:
        writer.put(people(*range(40, 90)))
        writer.flush()
    Table.open(made.uri).run(MergeRequest())
    return made


@pytest.mark.req("LEASE-42")
def test_catch_up_works_under_the_lease_of_its_run_and_a_second_run_is_skipped(
    table: BaseTable, run_dag: RunDag
) -> None:
    first = run_dag({"table": table.uri}, "memwal_catchup")

    assert first.returncode == 0, first.stdout
    assert "in the worker: " in first.stdout
    assert "Spark-Submit cmd" not in first.stdout
    runs = Table.open(table.uri).opened.ledger.runs("catchup")
    assert sorted(run.key.scope for run in runs) == ["index-name_idx", "index-score_idx"]
    assert {(run.outcome.value, run.fencing_token) for run in runs} == {("done", 1)}
    assert all(run.holder.startswith("memwal_catchup/manual__") for run in runs)
    leases = Table.open(table.uri).opened.leases
    assert all(lease.document.released for key in leases.known_keys() if (lease := leases.read(key)))

    second = run_dag({"table": table.uri}, "memwal_catchup")

    assert second.returncode == 0, second.stdout
    assert "nothing to do, or a dry run" in second.stdout
    assert "starting task_id=work" not in second.stdout


@pytest.mark.req("LEASE-42")
def test_run_that_meets_a_lease_in_other_hands_changes_nothing(table: BaseTable, run_dag: RunDag) -> None:
    Table.open(table.uri).opened.leases.acquire(JobKey("snapshot"), "somebody else")
    version = table.state().version

    ran = run_dag({"table": table.uri}, "memwal_snapshot", MAINTENANCE_LEASE_WAIT_S="0")

    assert ran.returncode != 0
    assert "another process holds the lease" in ran.stdout
    assert "maintenance failed [table=" in ran.stdout
    assert "starting task_id=work" not in ran.stdout
    assert table.state().version == version


def test_unregistered_table_is_refused_before_anything_is_read(
    table: BaseTable, run_dag: RunDag, tmp_path: Path
) -> None:
    registry = tmp_path / "tables.toml"
    registry.write_text("[[tables]]\nname = 'other'\nuri = 'other.lance'\n")

    ran = run_dag({"table": table.uri}, "memwal_gc", MAINTENANCE_TABLES=str(registry))

    assert ran.returncode != 0
    assert "this table is not registered" in ran.stdout


@pytest.mark.spark
@pytest.mark.req("O10")
def test_large_compaction_is_a_spark_application_and_is_verified(table: BaseTable, run_dag: RunDag) -> None:
    """Before, Airflow's worker rewrote the fragments of every table itself."""
    ran = run_dag({"table": table.uri, "force": True}, "memwal_compact", MEMWAL_DISPATCH__MAX_BYTES="0")

    assert ran.returncode == 0, ran.stdout
    assert "as a Spark application: " in ran.stdout
    assert "Spark-Submit cmd" in ran.stdout
    assert "starting task_id=verify" in ran.stdout
    [run] = Table.open(table.uri).opened.ledger.runs("compact")
    assert (run.outcome.value, run.fencing_token) == ("done", 1)
    assert len(table.dataset().get_fragments()) == 1


def test_rows_that_a_writer_left_are_flushed_and_keys_are_counted_on_request(table: BaseTable, run_dag: RunDag) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(*range(90, 95)))

    for dag in ("memwal_flush", "memwal_verify"):
        ran = run_dag({"table": table.uri}, dag)
        assert ran.returncode == 0, ran.stdout
        assert "starting task_id=verify" in ran.stdout

    admin = Table.open(table.uri)
    own = [run for run in admin.opened.ledger.runs() if run.holder.startswith("memwal_")]
    assert [(run.key.job, run.outcome.value) for run in own] == [("flush", "done"), ("verify", "done")]
    assert admin.status().merge_lag_generations > 0


def test_cycle_takes_a_registered_table_from_flushed_rows_to_a_snapshot(
    table: BaseTable, run_dag: RunDag, tmp_path: Path, airflow_variables: Mapping[str, str]
) -> None:
    with TableWriter.open(table) as writer:
        writer.put(people(*range(90, 120)))
        writer.flush()
    registry = tmp_path / "tables.toml"
    registry.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n")

    ran = run_dag({}, "memwal_maintain", MAINTENANCE_TABLES=str(registry))

    assert ran.returncode == 0, ran.stdout
    assert "Spark-Submit cmd" not in ran.stdout  # everything is small
    admin = Table.open(table.uri)
    status = admin.status()
    assert (status.num_rows, status.merge_lag_generations) == (120, 0)
    own = [run for run in admin.opened.ledger.runs() if run.holder.startswith("memwal_maintain/")]
    jobs = [run.key.job for run in own if run.outcome.value == "done"]
    assert jobs[:4] == ["maintain", "merge", "verify", "catchup"]
    [cycle] = [run for run in own if run.key.job == "maintain"]
    assert cycle.facts["steps"]["merge"] == "done"
    assert set(cycle.facts["steps"]) == {step.value for step in StepName}
    assert jobs[-1] == "snapshot"
    _require_told(Path(airflow_variables["AIRFLOW_HOME"]) / "airflow.db", table)


def test_report_of_a_cycle_says_that_another_run_was_doing_a_step(
    table: BaseTable, run_dag: RunDag, tmp_path: Path
) -> None:
    """It said of each step that was skipped that there had been nothing to do."""
    with TableWriter.open(table) as writer:
        writer.put(people(*range(90, 120)))
        writer.flush()
    registry = tmp_path / "tables.toml"
    registry.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\ncollect_garbage = false\n")
    lease = Table.open(table.uri).opened.leases.acquire(JobKey("merge"), "memwal_merge/manual__2")

    ran = run_dag({}, "memwal_maintain", MAINTENANCE_TABLES=str(registry))

    assert ran.returncode == 0, ran.stdout
    lease.release()
    [cycle] = Table.open(table.uri).opened.ledger.runs("maintain")
    assert (cycle.outcome, cycle.facts["steps"]["merge"]) == (RunOutcome.BUSY, "conflict")
    reported = ran.stdout.partition("starting task_id=cycle.end")[2]
    assert "another process holds the lease of this job" in reported
    assert "there was nothing to do" not in reported


@pytest.mark.parametrize(
    ("dag", "asked", "overrules", "said"),
    [
        ("memwal_compact", {"table": "people", "dryrun": True}, "True", "unknown=['dryrun']"),
        ("memwal_maintain", {"table": "people"}, "True", "unknown=['table']"),
        ("memwal_maintain", {"tables": ["another"]}, "False", "ignored=['tables']"),
    ],
)
def test_run_whose_configuration_airflow_ignores_changes_nothing(
    table: BaseTable, run_dag: RunDag, tmp_path: Path, dag: str, asked: dict[str, Any], overrules: str, said: str
) -> None:
    """A dry run that was misspelt compacted, and the cycle that was to maintain one table maintained all."""
    registry = tmp_path / "tables.toml"
    registry.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n")
    more = {"MAINTENANCE_TABLES": str(registry), "AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS": overrules}
    before = Table.open(table.uri).opened.ledger.runs()

    ran = run_dag(asked, dag, **more)

    assert said in ran.stdout
    assert Table.open(table.uri).opened.ledger.runs() == before


def test_run_that_another_dag_triggers_is_done_where_lineage_is_collected(table: BaseTable, run_dag: RunDag) -> None:
    """``TriggerDagRunOperator`` adds its own run to the configuration, and each such run was refused."""
    parent = {"parentRunId": "019a", "parentJobName": "nightly.trigger", "parentJobNamespace": "default"}

    run_dag({"table": table.uri, "openlineage": parent}, "memwal_snapshot")

    assert Table.open(table.uri).opened.ledger.runs()[-1].key.job == "snapshot"


def _require_told(database: Path, table: BaseTable) -> None:
    """Find the events of the assets that runs by hand change as well."""
    with closing(sqlite3.connect(database)) as connection:
        found = connection.execute(
            "SELECT asset.name, asset_event.extra FROM asset_event JOIN asset ON asset.id = asset_event.asset_id"
        ).fetchall()
    events = [(name, json.loads(extra)) for name, extra in found if table.uri in extra]
    assert all(extra["in_cycle"] for _, extra in events)
    told = {name: extra["tables"] for name, extra in events}
    assert set(told) == {"memwal_base_table", "memwal_indexes"}
    [merged] = told["memwal_base_table"]
    assert (merged["table"], merged["uri"], merged["summary"]) == ("people", table.uri, "done")
    assert merged["facts"]["rows"] == 30
