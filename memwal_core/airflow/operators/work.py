"""A piece of work under the lease of its run; where it has to wait, it does so without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from memwal_core.airflow.defaults import holder_of
from memwal_core.airflow.operators.untemplated import Untemplated

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context


class LeasedWork(Untemplated):
    """Does one piece of work that a plan returned and ``HoldLeases`` took the lease for.

    Doing it again is harmless. A garbage collection whose form says **Wait** is deferred between
    draining and deleting: the triggerer keeps the lease for the grace period, and neither a worker
    nor a pool slot is taken.

    Args:
        job: Of which job; other work is refused.
        item: The work; ``{{ task.item.label }}`` names the mapped task.
        **arguments: Of every operator.
    """

    template_fields: Sequence[str] = ("item",)

    def __init__(self, *, job: str, item: Any, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.job = job
        self.item = item

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the work, or what can be done before waiting.

        Raises:
            AirflowSkipException: There was nothing left to do.
            FencedError: Somebody else has the lease now, and does the work.
            InvalidRequestError: It is work of another job.
            TaskDeferred: The rest is done after waiting.
        """
        from memwal_core.airflow.tasks.work import do_work, require_job

        require_job([self.item], self.job)
        result = do_work(self.item, holder_of(context))
        if result["due_at"] and self.item["request"].get("wait"):
            from memwal_core.airflow.triggers import GraceTrigger

            self.log.info("waiting until %s; then the rest is done", result["due_at"])
            trigger = GraceTrigger(self.item["table"], self.item["ticket"], result["due_at"], result)
            raise TaskDeferred(trigger=trigger, method_name="resume")
        return _told(result)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Do the rest after waiting; whoever lost the lease meanwhile does nothing.

        Raises:
            FencedError: Somebody else has the lease now, and does the work.
        """
        from memwal_core.airflow.tasks.work import finish_work, require_job

        require_job([self.item], self.job)
        self.log.info("waited [fenced=%s]", event["fenced"])
        return _told(finish_work(self.item, holder_of(context), event["begun"]))


def _told(result: Any) -> dict[str, Any]:  # noqa: ANN401
    if result["outcome"] == "nothing_to_do":
        raise AirflowSkipException("another run did it before, or there was nothing left")
    return dict(result)
