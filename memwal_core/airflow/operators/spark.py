"""Spark jobs of ours as tasks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowSkipException

from memwal_core.airflow.defaults import holder_of
from memwal_core.airflow.operators.untemplated import Untemplated

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

SPARK_CONNECTION = "spark_default"
"""Decides where jobs run: on this machine, or on a cluster."""


class SparkWork(Untemplated, SparkSubmitOperator):
    """Does one piece of work that a plan returned as a Spark application.

    The application is handed one JSON document, and the options of its object store, through its environment.

    Args:
        item: The work; ``{{ task.label }}`` names the mapped task.
        jobs_folder: Where the Spark applications are.
        **arguments: Of the Spark operator.
    """

    template_fields = ("item",)

    def __init__(self, *, item: Any, jobs_folder: str, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values; connection and document are made when the job starts."""
        super().__init__(**{"conn_id": SPARK_CONNECTION, **arguments})
        self.item = item
        self.jobs_folder = jobs_folder

    @property
    def label(self) -> str:
        """What the work is called, once it is known."""
        return str(self.item["label"]) if isinstance(self.item, dict) else ""

    def execute(self, context: Context) -> None:
        """Submit the job and wait for its end.

        Raises:
            AirflowSkipException: There is no work.
        """
        if not self.item:
            raise AirflowSkipException("nothing to do; the log of the plan says why")
        from memwal_core.airflow.connections import read_connection
        from memwal_core.airflow.tasks.work import document_of
        from memwal_core.jobs.document import DOCUMENT_VARIABLE
        from memwal_core.storage.options import STORAGE_OPTIONS_VARIABLE
        from memwal_core.telemetry import child_variables

        job, connection = self.item["job"], self.item["target"]["connection"]
        self.application = str(Path(self.jobs_folder) / f"{job}.py")
        self.name = self.label
        environment = {DOCUMENT_VARIABLE: document_of(self.item, holder_of(context)).to_text(), **child_variables()}
        if connection:
            environment[STORAGE_OPTIONS_VARIABLE] = json.dumps(dict(read_connection(connection).options))
        self.env_vars = {**(self.env_vars or {}), **environment}
        super().execute(context)


def jobs_folder(dag_file: str) -> str:
    """Return where Spark applications are: beside the DAG folder, or where ``MAINTENANCE_JOBS_FOLDER`` says."""
    return os.environ.get("MAINTENANCE_JOBS_FOLDER") or str(Path(dag_file).resolve().parent.parent / "jobs")
