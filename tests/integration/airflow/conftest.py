"""An Airflow of the tests' own: SQLite and home in a temporary directory, Spark on this machine."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import memwal_core
from demo.airflow import airflow_environment, configure_spark, find_checkout, find_java
from demo.directory import claim_directory

TIMEOUT_S = 900

ANY_TABLE = "single_user = true"
"""A registry under which runs may name tables, sources and targets by their address."""

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def any_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks that run in this process name any table."""
    registry = tmp_path / "any-table.toml"
    registry.write_text(ANY_TABLE)
    monkeypatch.setenv("MAINTENANCE_TABLES", str(registry))


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    """Return a suite of the operator's: no setting admits another file."""
    folder = tmp_path / "suites"
    folder.mkdir()
    file = folder / "names.json"
    file.write_text("{}")
    return file


@pytest.fixture(scope="session")
def airflow_variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables of an Airflow that has no database yet: enough to load DAG files."""
    directory = claim_directory(tmp_path_factory.mktemp("airflow") / "demo")
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    configure_spark(directory)
    (directory.root / "tables.toml").write_text(ANY_TABLE)
    return airflow_environment(directory, checkout, find_java(checkout, os.environ), os.environ)


@pytest.fixture(scope="session")
def airflow_database(airflow_variables: Mapping[str, str]) -> None:
    """Make the database, which runs of DAGs need."""
    command = ["airflow", "db", "migrate"]
    subprocess.run(command, env=airflow_variables, check=True, capture_output=True, timeout=TIMEOUT_S)


@pytest.fixture
def run_dag(airflow_variables: Mapping[str, str], airflow_database: None) -> RunDag:
    """Run ``airflow dags test`` with parameters, of the merge by default; more variables as keywords."""

    def run(
        configuration: Mapping[str, Any], dag: str = "memwal_merge", **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["airflow", "dags", "test", dag, "-c", json.dumps(configuration)],
            env={**airflow_variables, **more},
            check=False,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
        )

    return run
