"""Spark jobs of ours as tasks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

SPARK_CONNECTION = "spark_default"
"""Decides where jobs run: on this machine, or on a cluster."""


class MaintenanceJob(SparkSubmitOperator):
    """A Spark job of ours: the options of its object store go into its environment, where nobody sees them.

    Args:
        storage_connection: Airflow connection of type lance; empty = none.
        **arguments: Of the Spark operator.
    """

    template_fields = (*SparkSubmitOperator.template_fields, "storage_connection")

    def __init__(self, *, storage_connection: str = "", **arguments: Any) -> None:  # noqa: ANN401
        """Keep the connection's name; it is read when the job starts."""
        super().__init__(**arguments)
        self.storage_connection = storage_connection

    def execute(self, context: Context) -> None:
        """Submit the job and wait for its end."""
        from memwal_core.cli.telemetry import child_variables

        self.env_vars = {**(self.env_vars or {}), **child_variables()}
        if self.storage_connection:
            from memwal_airflow.hook import LanceHook

            options = LanceHook(self.storage_connection).storage_options()
            self.env_vars = {**(self.env_vars or {}), "MAINTENANCE_STORAGE_OPTIONS": json.dumps(options)}
        super().execute(context)


def job_file(name: str, dag_file: str) -> str:
    """Return where a Spark application is: beside the DAG folder, or where ``MAINTENANCE_JOBS_FOLDER`` says.

    Args:
        name: Of the application, for example ``merge.py``.
        dag_file: The DAG file that asks.
    """
    folder = os.environ.get("MAINTENANCE_JOBS_FOLDER") or Path(dag_file).resolve().parent.parent / "jobs"
    return str(Path(folder) / name)


def as_spark_job(item: dict[str, Any]) -> dict[str, Any]:
    """Turn an entry of the plan into arguments of the Spark operator."""
    return {
        "name": item["label"],
        "application_args": item["arguments"],
        "storage_connection": item["target"]["connection"],
    }
