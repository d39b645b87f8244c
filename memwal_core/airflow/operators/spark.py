"""Spark jobs of ours as tasks."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from memwal_core.airflow.defaults import holder_of
from memwal_core.airflow.failures import exit_code_of
from memwal_core.airflow.notifying import NOTIFIERS_VARIABLE
from memwal_core.airflow.operators.untemplated import Untemplated

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

    from memwal_core.airflow.tasks.work import WorkItem
    from memwal_core.errors import InvalidRequestError

SPARK_CONNECTION = "spark_default"
"""Decides where jobs run: on this machine, or on a cluster."""

ENVIRONMENT_VARIABLE = "MAINTENANCE_JOB_ENVIRONMENT"
"""Further variables that jobs inherit from the worker: names or shell patterns, with commas between them."""

_INHERITED = (
    "HOME", "USER", "LOGNAME", "LANG", "LC_*", "TZ", "TMPDIR", "PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV",
    "JAVA_*", "JDK_*", "SPARK_*", "PYSPARK_*", "PYTHON*", "HADOOP_*", "YARN_*", "KRB5*", "OMP_*", "ARROW_*", "RUST_*",
    "AWS_*", "GOOGLE_*", "AZURE_*", "SSL_CERT_*", "REQUESTS_CA_BUNDLE", "*_PROXY", "*_proxy",
    "LANCE_*", "MEMWAL_*", "MAINTENANCE_*", "OTEL_*",
)  # fmt: skip


_COULD_NOT_START = (1, 2)
"""Exit codes of a spark-submit that failed, and of a Python that found no file; jobs have them, too."""


class SparkWork(Untemplated, SparkSubmitOperator):
    """Can do work of a job as a Spark application; operators below it say which work, and when.

    The application is handed one JSON document, and the options of its object store, through its environment. Of the
    worker's environment it inherits what jobs need, so none of Airflow's secrets. Where the driver runs elsewhere
    (deploy mode ``cluster``) the document is its argument, and the cluster has to know the secrets of the object
    store: on a command line everybody could read them.

    Args:
        job: Of which job.
        jobs_folder: Where its application is.
        **arguments: Of the Spark operator.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, job: str, jobs_folder: str, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values; connection and document are made when the job starts."""
        super().__init__(**{"conn_id": SPARK_CONNECTION, **arguments})
        # A repeated job is harmless, and finds by its lease whether the first one still works. Not an argument, which
        # the provider warns of where Airflow, before 3.3, knows no durable tasks.
        self.durable = False
        self.job = job
        self.jobs_folder = jobs_folder

    def submit(self, item: WorkItem, context: Context) -> None:
        """Submit some work, which the caller has checked, and wait for its end.

        Raises:
            InvalidRequestError: The work names something that is not registered, the driver runs elsewhere and the
                table's connection has secrets, or what starts an application is missing.
            AirflowException: The application failed; ``failures`` knows its exit code.
        """
        from memwal_core.airflow.tasks.on_spark import document_of
        from memwal_core.airflow.tasks.tables import find_table, storage_options
        from memwal_core.jobs.document import DOCUMENT_VARIABLE, handed_over
        from memwal_core.storage.options import STORAGE_OPTIONS_VARIABLE
        from memwal_core.telemetry import child_variables

        self.application = str(Path(self.jobs_folder) / f"{item['job']}.py")
        self.name = item["label"]
        document = document_of(item, holder_of(context)).to_text()
        options = dict(storage_options(find_table(item["table"])))
        environment = {**inherited(os.environ), **(self.env_vars or {}), **child_variables()}
        # The provider would put these on the command line of some clusters.
        self.env_vars = None
        if self._get_hook()._connection["deploy_mode"] == "cluster":  # noqa: SLF001 - only the hook reads connections
            _refuse_options(options, item["table"])
            _refuse_length(document, item["table"])
            self.application_args = [document]
            self._run(environment, context)
            return
        with handed_over(document) as text:
            self._run(environment | {DOCUMENT_VARIABLE: text, STORAGE_OPTIONS_VARIABLE: json.dumps(options)}, context)

    def _run(self, environment: dict[str, str], context: Context) -> None:
        hook = self._get_hook()
        hook.submit = functools.partial(hook.submit, env=environment)  # type: ignore[method-assign]
        self._hook = hook
        try:
            SparkSubmitOperator.execute(self, context)
        except FileNotFoundError as error:
            raise _not_installed(str(error.filename)) from error
        except AirflowException as error:
            if exit_code_of(error) in _COULD_NOT_START:
                self._require_parts(hook._connection["deploy_mode"])  # noqa: SLF001
            raise

    def _require_parts(self, deploy_mode: str | None) -> None:
        """Name what an application needs and does not find, of which its own failure says little."""
        from memwal_core.airflow.connections import find_connection

        find_connection(self._conn_id, "spark")  # Without one the provider asks for YARN.
        if deploy_mode != "cluster":
            _refuse_missing(self.application)


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a worker that a job needs; never what notifiers are made with: that may be a secret."""
    more = [pattern.strip() for pattern in environment.get(ENVIRONMENT_VARIABLE, "").split(",")]
    patterns = (*_INHERITED, *filter(None, more))
    return {
        name: value
        for name, value in environment.items()
        if name != NOTIFIERS_VARIABLE and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


def _refuse_options(options: Mapping[str, str], table: str) -> None:
    if not options:
        return
    from memwal_core.errors import InvalidRequestError

    raise InvalidRequestError(
        "the driver runs on the cluster, where the secrets of this table's connection would be on a command line",
        remedy="let the cluster know them (an instance role, a mounted secret, its own environment) and register the "
        "table without a connection, or use deploy mode client",
        table=table,
        options=sorted(options),
    )


def _refuse_missing(application: str) -> None:
    if Path(application).is_file():
        return
    from memwal_core.errors import InvalidRequestError

    raise InvalidRequestError(
        "there is no such Spark application",
        remedy="copy the folder jobs with `memwal airflow install` beside that of the DAGs, or let "
        "MAINTENANCE_JOBS_FOLDER say where it is, in the environment of all of Airflow's processes",
        path=application,
    )


def _not_installed(program: str) -> InvalidRequestError:
    from memwal_core.errors import InvalidRequestError

    return InvalidRequestError(
        f"this worker has no {program}", remedy="install memwal-core[spark] there, or put Spark on its PATH"
    )


def _refuse_length(document: str, table: str) -> None:
    from memwal_core.errors import InvalidRequestError
    from memwal_core.jobs.document import MAX_INLINE_BYTES

    if (size_bytes := len(document.encode())) > MAX_INLINE_BYTES:
        raise InvalidRequestError(
            "the job's document is too long for the command line of a driver on the cluster",
            remedy="ask for less in one run, for example for fewer regions, or use deploy mode client",
            table=table,
            size_bytes=size_bytes,
            longest=MAX_INLINE_BYTES,
        )


def jobs_folder(dag_file: str) -> str:
    """Return where Spark applications are: beside the DAG folder, or where ``MAINTENANCE_JOBS_FOLDER`` says."""
    return os.environ.get("MAINTENANCE_JOBS_FOLDER") or str(Path(dag_file).resolve().parent.parent / "jobs")
