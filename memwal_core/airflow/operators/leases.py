"""The tasks that take the leases of a run, waiting for them without a worker, and give them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import TaskDeferred
from airflow.sdk import task

from memwal_core.airflow.defaults import holder_of, time_of
from memwal_core.airflow.failures import no_vain_retries
from memwal_core.airflow.operators.untemplated import Untemplated

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

LEASE_WAIT_S = time_of("MAINTENANCE_LEASE_WAIT_S", 1800, may_be_none=True).total_seconds()
"""How long a run waits for leases that others hold; 0 = it fails at once and is tried again."""


class HoldLeases(Untemplated):
    """Takes the leases of all work of a run, all or none, and returns the work with their tickets.

    While somebody else holds one, the task is deferred: the triggerer watches the lease, and neither
    a worker nor a pool slot is taken.

    Args:
        job: Of which job; other work is refused.
        wait_s: Seconds to wait at most.
        **arguments: Of every operator.
    """

    template_fields: Sequence[str] = ("items",)

    def __init__(self, *, job: str, items: Any, wait_s: float = LEASE_WAIT_S, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.job = job
        self.items = items
        self.wait_s = wait_s

    @no_vain_retries
    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Take the leases, or wait for them.

        Raises:
            LeaseHeldError: Somebody else has one, and there is no time left to wait.
            InvalidRequestError: There is work of another job.
        """
        return self._take(context, (datetime.now(UTC) + timedelta(seconds=self.wait_s)).isoformat())  # noqa: TID251

    @no_vain_retries
    def resume(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Take the leases after waiting; somebody may have been faster, then wait for the rest of the time."""
        self.log.info("waited for leases [free=%s, rival=%s]", event["free"], event["holder"])
        return self._take(context, event["until"])

    def _take(self, context: Context, until: str) -> list[dict[str, Any]]:
        from memwal_core.airflow.tasks.work import hold_leases, require_job, wanted_leases
        from memwal_core.coordination.lease import LeaseHeldError

        require_job(self.items, self.job)
        holder = holder_of(context)
        try:
            return list(map(dict, hold_leases(self.items, holder)))
        except LeaseHeldError as error:
            if datetime.now(UTC) >= datetime.fromisoformat(until):  # noqa: TID251
                raise
            self.log.info("%s", error)
            from memwal_core.airflow.triggers import LeaseFreeTrigger

            trigger = LeaseFreeTrigger(wanted_leases(self.items), holder, until)
            raise TaskDeferred(trigger=trigger, method_name="resume") from None


def hold_for(job: str, items: Any) -> HoldLeases:  # noqa: ANN401 - the result of a task
    """Return the task that takes the leases for the work that a plan returned."""
    return HoldLeases(
        task_id="hold",
        job=job,
        items=items,
        doc_md="Takes the lease of each piece of work for this run; waits, without a worker, while others hold one. "
        "Clearing a task of work clears this, too.",
    )


@task(task_id="release", doc_md="Gives the leases back, whatever happened.")
@no_vain_retries
def release(items: Any) -> list[str]:  # noqa: ANN401
    """Return the tickets that were given back."""
    from memwal_core.airflow.tasks.work import release_leases

    return release_leases(items)
