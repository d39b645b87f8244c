"""What the maintenance DAGs share: where the Spark jobs are, and which failures are worth a retry."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import RetryDecision, RetryPolicy

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

JOBS_FOLDER = Path(os.environ.get("MAINTENANCE_JOBS_FOLDER") or Path(__file__).resolve().parent.parent / "jobs")
"""The Spark applications; beside the DAG folder unless the environment says otherwise."""

RETRIES = int(os.environ.get("MAINTENANCE_RETRIES") or 4)
"""Further attempts of each task; 0 where somebody watches, as in the demonstration."""

SPARK_CONNECTION = "spark_default"

# The same numbers as MemwalError.exit_code, which must not be imported here; a test compares them.
WRONG_INPUT = 2
NEEDS_A_HUMAN = 5

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


DEFAULT_ARGUMENTS: dict[str, Any] = {
    "owner": "data-platform",
    "retries": RETRIES,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": 2.0,
    "max_retry_delay": timedelta(minutes=10),
    "retry_policy": RetryByExitCode(),
}
"""For all tasks: conflicts with other writers pass by themselves, so wait and try again."""
