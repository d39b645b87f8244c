"""What the maintenance DAGs share: jobs, connections, pools, assets, retries, and who is told of failures."""

from __future__ import annotations

import json
import logging
import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Param, RetryDecision, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk.definitions.context import Context

JOBS_FOLDER = Path(os.environ.get("MAINTENANCE_JOBS_FOLDER") or Path(__file__).resolve().parent.parent / "jobs")
"""The Spark applications; beside the DAG folder unless the environment says otherwise."""

RETRIES = int(os.environ.get("MAINTENANCE_RETRIES") or 4)
"""Further attempts of each task; 0 where somebody watches, as in the demonstration."""

SPARK_CONNECTION = "spark_default"

REGIONS = Asset(name="memwal_regions", uri="memwal://regions", group="memwal")
"""A batch was written into regions; the event says of which table, which batch, how many rows."""

BASE_TABLE = Asset(name="memwal_base_table", uri="memwal://base-table", group="memwal")
"""Rows were merged; the event says into which table, which version, which generations, how many rows."""

INDEXES = Asset(name="memwal_indexes", uri="memwal://indexes", group="memwal")
"""Indexes were extended over merged rows; the event says of which table and version."""

RUNBOOKS = os.environ.get("MAINTENANCE_RUNBOOKS") or "docs/runbooks"
"""Where people find the runbooks: a folder or an address."""


def pool_for(job: str) -> dict[str, str]:
    """Return the pool of a kind of job, as arguments of a task.

    Airflow never starts a task whose pool does not exist. So the pools count only where
    ``MAINTENANCE_POOLS=true`` says that ``airflow pools import dags/pools.json`` was run.
    """
    return {"pool": f"memwal_{job}"} if os.environ.get("MAINTENANCE_POOLS", "").lower() == "true" else {}


# The same numbers as MemwalError.exit_code, which must not be imported here; a test compares them.
WRONG_INPUT = 2
NEEDS_A_HUMAN = 5

_alerts = logging.getLogger("memwal.alerts")
_SUBMIT_EXIT_CODE = re.compile(r"Error code is: (\d+)")


class RetryByExitCode(RetryPolicy):
    """Fail at once what no retry can mend; leave everything else to the task's own retries.

    Knows the exit code of a Spark job from the provider's exception, and of a Python task from
    the error itself.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,  # noqa: ARG002 - Airflow's signature
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,  # noqa: ARG002
    ) -> RetryDecision:
        """Decide by the exit code."""
        code = exit_code_of(exception)
        if code == WRONG_INPUT:
            return RetryDecision.fail("the input is wrong; correct it and trigger the run again")
        if code == NEEDS_A_HUMAN:
            return RetryDecision.fail("a person must decide; the log names the runbook")
        return RetryDecision.default()

    def serialize(self) -> dict[str, Any]:
        """Return the state: there is none."""
        return {}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> RetryByExitCode:  # noqa: ARG003 - Airflow's signature
        """Rebuild from ``serialize``."""
        return cls()


def exit_code_of(exception: BaseException) -> int | None:
    """Return the exit code that a failure stands for, if it says one."""
    code = getattr(exception, "exit_code", None)
    if isinstance(code, int):
        return code
    found = _SUBMIT_EXIT_CODE.search(str(exception))
    return int(found.group(1)) if found else None


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
            from memwal_core.airflow.hook import LanceHook

            options = LanceHook(self.storage_connection).storage_options()
            self.env_vars = {**(self.env_vars or {}), "MAINTENANCE_STORAGE_OPTIONS": json.dumps(options)}
        super().execute(context)


def as_spark_job(item: dict[str, Any]) -> dict[str, Any]:
    """Turn an entry of the plan into arguments of the Spark operator."""
    return {
        "name": item["label"],
        "application_args": item["arguments"],
        "storage_connection": item["target"]["connection"],
    }


def holder_of(context: Mapping[str, Any]) -> str:
    """Return who holds the leases of a run: the run itself, unique over all DAGs."""
    return f"{context['dag'].dag_id}/{context['run_id']}"


def tell_failure(context: Mapping[str, Any]) -> None:
    """Log what on-call needs: table, region, verdict, runbook. Log shippers look for the logger's name."""
    exception, params = context.get("exception"), context.get("params") or {}
    facts = getattr(exception, "facts", {})
    instance = context.get("ti")
    named = re.search(r"docs/runbooks/([\w-]+\.md)", str(exception))
    _alerts.error(
        "maintenance failed [table=%s, region=%s, verdict=%s, runbook=%s, dag=%s, task=%s]",
        facts.get("table") or params.get("table") or "see the log of the task",
        facts.get("region_id") or facts.get("regions") or "-",
        str(exception) or type(exception).__name__,
        f"{RUNBOOKS}/{named[1]}" if named else RUNBOOKS,
        getattr(instance, "dag_id", "-"),
        getattr(instance, "task_id", "-"),
    )


def table_param(*, optional: bool) -> Param:
    """Return the field that names the table."""
    description = "Name of a registered table or, where that is allowed, its path or address."
    if optional:
        description += " Empty: the tables whose change started the run."
        return Param(None, type=["null", "string"], minLength=1, title="Table", description=description)
    return Param(type="string", minLength=1, title="Table", description=description)


STORAGE_PARAMS = {
    "storage_connection": Param(
        None,
        type=["null", "string"],
        title="Storage connection",
        description="Airflow connection of type lance with address and credentials of the object store. Empty: the "
        "one of the registered table, or the environment of the workers.",
        section="Storage",
    ),
    "storage_options": Param(
        {},
        type="object",
        additionalProperties={"type": "string"},
        title="Storage options",
        description="Further options of the object store, for example an endpoint. Visible to everyone: no secrets.",
        section="Storage",
    ),
}

DRY_RUN = "Only plan: the log of the task plan says what would be done, and nothing is changed."

DEFAULT_ARGUMENTS: dict[str, Any] = {
    "owner": "data-platform",
    "retries": RETRIES,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": RetryByExitCode(),
    "on_failure_callback": tell_failure,
}
"""For all tasks: conflicts with other writers pass by themselves, so wait and try again."""
