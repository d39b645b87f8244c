"""The demonstration's Airflow is its own, whatever else the machine is set up for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import memwal_core
from demo.airflow import (
    Checkout,
    airflow_environment,
    configure_spark,
    essence,
    find_checkout,
    find_java,
    run_merge_dag,
)
from demo.directory import DemoDirectory, claim_directory
from memwal_core.errors import InvalidRequestError

CHECKOUT = Checkout(Path("/clone"))
DIRECTORY = DemoDirectory(Path("/demo"))


def test_settings_of_other_airflows_and_sparks_do_not_reach_the_demonstration() -> None:
    foreign = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://production/airflow",
        "AIRFLOW_CONN_OTHER": "{}",
        "AIRFLOW_HOME": "/srv/airflow",
        "SPARK_HOME": "/opt/spark-3.5",
        "PYSPARK_PYTHON": "/usr/bin/python3",
    }

    made = airflow_environment(DIRECTORY, CHECKOUT, None, foreign)

    assert made.keys() & foreign.keys() == {"AIRFLOW_HOME", "PYSPARK_PYTHON"}
    assert made["AIRFLOW_HOME"] == "/demo/airflow"
    assert made["PYSPARK_PYTHON"] == sys.executable


def test_other_variables_are_passed_on_and_programs_of_this_environment_come_first() -> None:
    made = airflow_environment(DIRECTORY, CHECKOUT, "/java", {"HOME": "/home/ann", "PATH": "/usr/bin"})

    assert made["HOME"] == "/home/ann"
    assert made["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert made["JAVA_HOME"] == "/java"
    assert made["AIRFLOW__CORE__DAGS_FOLDER"] == "/clone/dags"
    assert json.loads(made["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[2]"


def test_dag_is_run_with_the_table_as_parameter() -> None:
    command = run_merge_dag({"A": "b"}, "/demo/flights.lance", name="merge")

    assert command.arguments[:4] == ("airflow", "dags", "test", "memwal_merge")
    assert json.loads(command.arguments[-1]) == {"table": "/demo/flights.lance"}
    assert command.environment == {"A": "b"}


def test_spark_memory_is_bounded_and_its_files_stay_in_the_directory(tmp_path: Path) -> None:
    directory = claim_directory(tmp_path)

    configure_spark(directory)

    defaults = dict(line.split(None, 1) for line in (directory.spark / "spark-defaults.conf").read_text().splitlines())
    assert defaults["spark.driver.memory"] == "1g"
    assert defaults["spark.local.dir"].startswith(str(tmp_path))


def test_working_copy_is_found_around_the_package() -> None:
    checkout = find_checkout(Path(memwal_core.__file__).parent)

    assert (checkout.dags / "memwal_jobs.py").is_file()


def test_package_without_dags_beside_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="not beside the package"):
        find_checkout(tmp_path / "memwal_core")


def test_java_home_of_the_environment_wins(tmp_path: Path) -> None:
    assert find_java(_chosen(tmp_path, "/other"), {"JAVA_HOME": "/java"}) == "/java"


def test_java_chosen_at_setup_wins_over_the_one_on_path(tmp_path: Path) -> None:
    assert find_java(_chosen(tmp_path, r"/my\ java"), {"PATH": str(_with_java(tmp_path))}) == "/my java"


def test_java_on_path_needs_no_home(tmp_path: Path) -> None:
    assert find_java(Checkout(tmp_path), {"PATH": str(_with_java(tmp_path))}) is None


def test_machine_without_java_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="make setup"):
        find_java(Checkout(tmp_path), {"PATH": str(tmp_path)})


def _chosen(root: Path, written: str) -> Checkout:
    (root / ".java").mkdir()
    (root / ".java" / "env").write_text(f"JAVA_HOME={written}\n")
    return Checkout(root)


def _with_java(root: Path) -> Path:
    (root / "java").write_text("#!/bin/sh\n")
    (root / "java").chmod(0o755)
    return root


STAMP = "2026-11-21T03:08:14.810292Z"
SPARK = "[airflow.task.hooks.airflow.providers.apache.spark.hooks.spark_submit.SparkSubmitHook] loc=spark_submit.py:965"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"{STAMP} [info     ] [DAG TEST] starting task_id=plan map_index=-1 [airflow.sdk] loc=dag.py:1", "task plan"),
        (f"{STAMP} [info     ] [DAG TEST] starting task_id=work map_index=3 [airflow.sdk] loc=x", "task work [3]"),
        (f"{STAMP} [info     ] INFO memwal_core.jobs.merge.run: merged [version=3] {SPARK}",
         "merged [version=3]"),
        (f"{STAMP} [info     ] /t: nothing to do: all is merged [memwal_core.airflow.tasks.work] loc=work.py:1",
         "/t: nothing to do: all is merged"),
        (f"{STAMP} [info     ] /t: region: 1c0c  merged: 1 [memwal_core.airflow.tasks.work] loc=work.py:104", None),
        (f"{STAMP} [info     ] /t: verified on version 3 [memwal_core.airflow.tasks.work] loc=work.py:2",
         "/t: verified on version 3"),
        (f"{STAMP} [info     ] Done. Returned value was: /t: verified on version 3 [airflow.task] loc=p.py:2", None),
        (f"{STAMP} [info     ] 26/11/21 INFO DAGScheduler: Got job 9 {SPARK}", None),
        (f"{STAMP} [error    ] Task failed with exception [task] loc=task_runner.py:1", "Task failed with exception"),
        ("Traceback (most recent call last):", None),
    ],
)  # fmt: skip
def test_log_line_is_reduced_to_its_essence(line: str, shown: str | None) -> None:
    assert essence(line) == shown
