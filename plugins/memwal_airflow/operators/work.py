"""A piece of work under the lease of its run; where it has to wait, it does so without a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from memwal_airflow.defaults import holder_of

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context


class LeasedWork(BaseOperator):
    """Does one piece of work that a plan returned and ``HoldLeases`` took the lease for.

    Doing it again is harmless. A garbage collection whose form says **Wait** is deferred between
    draining and deleting: the triggerer keeps the lease for the grace period, and neither a worker
    nor a pool slot is taken. What was done goes into the events of the task's outlets.

    Args:
        item: The work; ``{{ task.item.label }}`` names the mapped task.
        **arguments: Of every operator.
    """

    template_fields: Sequence[str] = ("item",)

    def __init__(self, *, item: Any, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.item = item

    def execute(self, context: Context) -> dict[str, Any]:
        """Do the work, or what can be done before waiting.

        Raises:
            AirflowSkipException: There was nothing left to do.
            FencedError: Somebody else has the lease now, and does the work.
            TaskDeferred: The rest is done after waiting.
        """
        from memwal_core.tasks.steps import run_step

        result = run_step(self.item, holder_of(context))
        if result["due_at"] and self.item["params"].get("wait"):
            from memwal_airflow.triggers import GraceTrigger

            self.log.info("waiting until %s; then the rest is done", result["due_at"])
            trigger = GraceTrigger(self.item["target"], self.item["ticket"], result["due_at"], result)
            raise TaskDeferred(trigger=trigger, method_name="resume")
        return self._told(context, result)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Do the rest after waiting; whoever lost the lease meanwhile does nothing.

        Raises:
            FencedError: Somebody else has the lease now, and does the work.
        """
        from memwal_core.tasks.steps import finish_step

        self.log.info("waited [fenced=%s]", event["fenced"])
        return self._told(context, finish_step(self.item, holder_of(context), event["begun"]))

    def _told(self, context: Context, result: Any) -> dict[str, Any]:  # noqa: ANN401
        if result["outcome"] == "nothing_to_do":
            raise AirflowSkipException("somebody else did it before, or there was nothing left")
        for outlet in self.outlets:
            context["outlet_events"][outlet].extra = result
        return dict(result)
