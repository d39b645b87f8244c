"""Airflow's servers beside a Spark cluster, as plain processes, and what tests ask them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil
import tenacity

import memwal_core
from demo.airflow import configure_spark, find_checkout, find_java
from demo.directory import DemoDirectory
from demo.stack.marked import marked_processes
from demo.stack.stack import Stack, free_port, stack_environment
from memwal_core.rng import system_rng
from testkit.processes.spark_cluster import ask

_BUSY = (HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.SERVICE_UNAVAILABLE)
_ATTEMPTS = 10


def _found_busy(error: BaseException) -> bool:
    """SQLite has one writer: a request that finds it busy, before it did anything, is answered so."""
    return isinstance(error, HTTPError) and error.code in _BUSY


def _close(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    if isinstance(error, HTTPError):
        error.close()


class AirflowClient:
    """Airflow's REST API as one user asks it, and the pages that its plugins mount.

    Args:
        stack: Whose servers answer.
        user: Who asks.
        password: The user's; the administrator's if None.
    """

    def __init__(self, stack: Stack, user: str = "admin", password: str | None = None) -> None:
        """Log in."""
        self._address = stack.address
        login = {"username": user, "password": stack.password if password is None else password}
        self.token: str = ask(f"{stack.address}/auth/token", login)["access_token"]

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_found_busy),
        stop=tenacity.stop_after_attempt(_ATTEMPTS),
        wait=tenacity.wait_fixed(1),
        before_sleep=_close,
        reraise=True,
    )
    def ask(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Return what the API answers; ``path`` is what follows its version."""
        return ask(f"{self._address}/api/v2/{path}".replace("+", "%2B"), body, self.token, method)

    def trigger(self, dag: str, conf: Mapping[str, Any]) -> str:
        """Start a run; return its id."""
        return str(self.ask("POST", f"dags/{dag}/dagRuns", {"logical_date": None, "conf": dict(conf)})["dag_run_id"])

    def state(self, dag: str, run: str) -> str:
        """Return the state of a run."""
        return str(self.ask("GET", f"dags/{dag}/dagRuns/{run}")["state"])

    def has_ended(self, dag: str, run: str) -> bool:
        """Whether a run has ended, well or not."""
        return self.state(dag, run) in ("success", "failed")

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """Return all runs of a DAG."""
        return self._pages(f"dags/{dag}/dagRuns", "dag_runs")

    def tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        """Return all task instances of a run."""
        return self._pages(f"dags/{dag}/dagRuns/{run}/taskInstances", "task_instances")

    def page(self, path: str) -> str:
        """Return a page of a plugin."""
        headers = {"Authorization": f"Bearer {self.token}"}
        with urlopen(Request(f"{self._address}/{path}", headers=headers), timeout=300) as answer:  # noqa: S310 - loopback
            return str(answer.read().decode())

    def _pages(self, path: str, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            page = self.ask("GET", f"{path}?limit=100&offset={len(found)}")
            found += page[name]
            if len(found) >= page["total_entries"] or not page[name]:
                return found


def cluster_variables(directory: DemoDirectory, master: int, secret: str, more: str = "") -> dict[str, str]:
    """Configure Spark for a cluster of small executors, and return the variables of Airflow's servers beside it.

    Args:
        directory: Of Airflow's servers.
        master: Port of the cluster's master.
        secret: As in the containers, everything on the cluster proves by it that it belongs there.
        more: Further lines of Spark's configuration.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    configure_spark(directory)
    with (directory.spark / "spark-defaults.conf").open("a") as defaults:
        defaults.write("spark.executor.memory 512m\nspark.executor.cores 1\nspark.task.maxFailures 8\n")
        defaults.write((checkout.root / "deploy" / "spark-defaults.conf").read_text())
        defaults.write(f"spark.authenticate.secret {secret}\n{more}")
    cluster = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": master, "extra": {"deploy-mode": "client"}}
    java = find_java(checkout, os.environ)
    return {
        **stack_environment(directory, checkout, java, inherited, port=free_port(), rng=system_rng()),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(cluster),
    }


def spark_drivers(directory: DemoDirectory) -> list[psutil.Process]:
    """Return the Spark drivers that tasks of a stack have started."""
    found = []
    for process in marked_processes(str(directory.root.resolve())):
        with suppress(psutil.Error):  # it has ended meanwhile
            if "org.apache.spark.deploy.SparkSubmit" in process.cmdline():
                found.append(process)
    return found
