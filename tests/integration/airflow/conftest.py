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
from memwal_core.demo.airflow import airflow_environment, configure_spark, find_checkout, find_java
from memwal_core.demo.directory import claim_directory

TIMEOUT_S = 900

RunDag = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def airflow_variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables of an Airflow whose database is made."""
    directory = claim_directory(tmp_path_factory.mktemp("airflow") / "demo")
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    configure_spark(directory)
    variables = airflow_environment(directory, checkout, find_java(checkout, os.environ), os.environ)
    subprocess.run(["airflow", "db", "migrate"], env=variables, check=True, capture_output=True, timeout=TIMEOUT_S)
    return variables


@pytest.fixture
def run_dag(airflow_variables: Mapping[str, str]) -> RunDag:
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
