"""What holds for the tasks of all DAGs: owner, retries, pools, and in whose name a run works."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk import BaseOperator
from croniter import croniter
from pydantic import TypeAdapter, ValidationError

from memwal_core.airflow.failures import tell_failure, tell_overdue
from memwal_core.airflow.notifying import NOTIFIERS_VARIABLE, notifiers
from memwal_core.errors import InvalidRequestError
from memwal_core.text import whole_number

if TYPE_CHECKING:
    from airflow.sdk.definitions.deadline import DeadlineAlert

_LONGEST = timedelta(days=36_500)
_LONGEST_LABEL = 250
_CRON_FIELDS = 6
"""Airflow knows one of seconds, and none of years."""


def time_of(variable: str, otherwise_s: float, *, may_be_none: bool = False) -> timedelta:
    """Return the time that a variable says in seconds.

    Args:
        variable: Of Airflow's processes.
        otherwise_s: What holds where it is not set.
        may_be_none: Whether it may be 0.

    Raises:
        InvalidRequestError: It is no such number of seconds, or more than a century; correct it.
    """
    text = os.environ.get(variable) or str(otherwise_s)
    try:
        found = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        found = timedelta(-1)
    if found > _LONGEST or found < timedelta(0) or not (found or may_be_none):
        least = "from 0" if may_be_none else "above 0"
        raise InvalidRequestError(
            f"{variable} is no number of seconds", remedy=f"write one {least}, like 1800", found=text
        )
    return found


def _retries() -> int:
    text = os.environ.get("MAINTENANCE_RETRIES") or "4"
    if (found := whole_number(text)) is None:
        raise InvalidRequestError("MAINTENANCE_RETRIES is no whole number", remedy="write one, like 4", found=text)
    return found


RETRIES = _retries()
"""Further attempts of each task; 0 where somebody watches, as in the demonstration."""

TASK_TIMEOUT = time_of("MAINTENANCE_TASK_TIMEOUT_S", 6 * 3600)
"""When a task that still works is ended, with its Spark driver; what it did stands, and it is tried again."""

RUN_TIMEOUT = time_of("MAINTENANCE_RUN_TIMEOUT_S", 24 * 3600)
"""When a run that has not ended fails."""

if os.environ.get(NOTIFIERS_VARIABLE):
    notifiers()  # What is wrong with them shall show here, not at the first failure.

SCHEDULE_VARIABLE = "MAINTENANCE_SCHEDULE"
"""When the cycle of all tables runs; by hand only by default."""

DEADLINE_VARIABLE = "MAINTENANCE_DEADLINE_S"
"""Seconds from the queueing of a run after which an alert says that it has not ended; none by default."""

DEFAULT_ARGUMENTS: dict[str, Any] = {
    "owner": "data-platform",
    "retries": RETRIES,
    "retry_delay": timedelta(seconds=20),
    # Twice as long each time: how much is a number from Airflow 3.2 on, and only whether before.
    "retry_exponential_backoff": type(BaseOperator.retry_exponential_backoff)(2),
    "max_retry_delay": timedelta(minutes=10),
    "execution_timeout": TASK_TIMEOUT,
    "on_failure_callback": tell_failure,
}
"""For all tasks: conflicts with other writers pass by themselves, so wait and try again."""


AHEAD_OF_CYCLES = 20
"""Priority of the tasks of a single job, which a person or an event waits for. In a cycle, that of the first steps is
the highest by Airflow's own rule, so that where slots are few all tables are merged before any is collected."""


def deadlines() -> list[DeadlineAlert]:
    """Return what a DAG passes as ``deadline``: nothing, unless the variable says how long a run may take.

    Raises:
        InvalidRequestError: The variable is no number of seconds above 0; correct it.
    """
    if not os.environ.get(DEADLINE_VARIABLE):
        return []
    from airflow.sdk.definitions import deadline

    allowed = time_of(DEADLINE_VARIABLE, 0)
    telling = deadline.AsyncCallback  # type: ignore[attr-defined]  # the only place where Airflow 3.1 has it
    told = telling(tell_overdue, {"seconds": allowed.total_seconds()})
    return [deadline.DeadlineAlert(deadline.DeadlineReference.DAGRUN_QUEUED_AT, allowed, told)]


def is_on(variable: str) -> bool:
    """Return whether a variable of Airflow's processes switches something on; off where it is not set.

    Raises:
        InvalidRequestError: It says neither true nor false; correct it.
    """
    text = os.environ.get(variable) or "false"
    try:
        return TypeAdapter(bool).validate_python(text)
    except ValidationError:
        raise InvalidRequestError(
            f"{variable} says neither true nor false", remedy="write true or false", found=text
        ) from None


def schedule() -> str | None:
    """Return when the cycle runs; None if only by hand.

    Raises:
        InvalidRequestError: The variable says something else; correct it.
    """
    text = os.environ.get(SCHEDULE_VARIABLE)
    # Airflow finds out only where it stores the DAG. Of its presets, these are no expressions that others know.
    if text and text not in ("@once", "@quarterly") and not _comes_again(text):
        raise InvalidRequestError(
            f"{SCHEDULE_VARIABLE} is no schedule",
            remedy="write a cron expression like */5 * * * *, or one of Airflow's presets like @hourly",
            found=text,
        )
    return text or None


def _comes_again(cron: str) -> bool:
    try:
        return len(cron.split()) <= _CRON_FIELDS and bool(croniter(cron).get_next())
    except (ValueError, KeyError):  # What croniter raises, a day that no month has among it.
        return False


def pool_for(job: str) -> dict[str, str]:
    """Return the pool of a kind of job, as arguments of a task.

    Airflow never starts a task whose pool does not exist. So the pools count only where
    ``MAINTENANCE_POOLS=true`` says that ``airflow pools import dags/pools.json`` was run.
    """
    return {"pool": f"memwal_{job}"} if is_on("MAINTENANCE_POOLS") else {}


def most_mapped() -> int:
    """Return how many tasks Airflow makes of one list at most; it refuses a longer one."""
    return conf.getint("core", "max_map_length", fallback=1024)


def shown_label(name: object) -> str:
    """Return the name of a mapped task as Airflow's database holds it: PostgreSQL would refuse a longer one."""
    text = str(name)
    return (
        text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL // 2 - 3]}...{text[-_LONGEST_LABEL // 2 :]}"
    )


def holder_of(context: Mapping[str, Any]) -> str:
    """Return who holds the leases of a run: the run itself, the same for all tries of all its tasks.

    Runs by schedule have one name in every Airflow that has the DAG. The moment at which each began tells them apart.
    """
    began = context["dag_run"].start_date
    moment = [began.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")] if began is not None else []
    return "/".join([context["dag"].dag_id, context["run_id"], *moment])


def run_of(holder: str) -> tuple[str, str]:
    """Return the ids of DAG and run of a holder; those of other holders mean nothing."""
    dag, _, rest = holder.partition("/")
    return dag, rest.partition("/")[0]
