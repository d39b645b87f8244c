"""A piece of work where its plan sends it: in this worker, or as a Spark application; waiting takes neither."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, TaskDeferred

from memwal_core.airflow.defaults import holder_of, shown_label
from memwal_core.airflow.failures import no_vain_retries
from memwal_core.airflow.operators.lineage import TellsLineage
from memwal_core.airflow.operators.spark import SparkWork

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

    from memwal_core.airflow.tasks.work import WorkResult


class LeasedWork(TellsLineage, SparkWork):
    """Does one piece of work that a plan returned and ``HoldLeases`` took the lease for.

    The plan says where: small work in this process, because a Spark application takes seconds to start; everything
    else as an application. Doing it again is harmless. A garbage collection whose form says **Wait** is deferred
    between draining and deleting: the triggerer keeps the lease for the grace period, and neither a worker nor a pool
    slot is taken.

    Args:
        item: The work; ``{{ task.label }}`` names the mapped task.
        **arguments: Of ``SparkWork``.
    """

    template_fields: Sequence[str] = ("item",)

    def __init__(self, *, item: Any, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.item = item

    @property
    def label(self) -> str:
        """What the work is called, once it is known."""
        return shown_label(self.item["label"]) if isinstance(self.item, dict) else ""

    @no_vain_retries
    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the base class returns nothing
        """Do the work, or what can be done before waiting.

        Raises:
            AirflowSkipException: There was nothing left to do.
            FencedError: Somebody else has the lease now, and does the work.
            InvalidRequestError: It is work of another job.
            TaskDeferred: The rest is done after waiting.
        """
        result = self._do(context)
        if result["due_at"] and self.item["request"].get("wait"):
            from memwal_core.airflow.triggers import GraceTrigger

            self.log.info("waiting until %s; then the rest is done", result["due_at"])
            trigger = GraceTrigger(self.item["table"], self.item["ticket"], result["due_at"], result)
            raise TaskDeferred(trigger=trigger, method_name="resume")
        return self._ended(result, context)

    @no_vain_retries
    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Do the rest after waiting; whoever lost the lease meanwhile does nothing.

        Raises:
            FencedError: Somebody else has the lease now, and does the work.
        """
        from memwal_core.airflow.tasks.work import both_halves

        self.log.info("waited [fenced=%s]", event["fenced"])
        return self._ended(both_halves(event["begun"], self._do(context)), context)

    def _do(self, context: Context) -> WorkResult:
        from memwal_core.airflow.tasks.work import do_work, require_job

        require_job([self.item], self.job)
        self.log.info("%s, %s", self.label, self.item["where"])
        if not self.item["to_spark"]:
            return do_work(self.item, holder_of(context))
        from memwal_core.airflow.tasks.on_spark import recorded_runs, result_of

        holder = holder_of(context)
        before = recorded_runs(self.item, holder)
        self.submit(self.item, context)
        return result_of(self.item, holder, before)

    def _ended(self, result: WorkResult, context: Context) -> dict[str, Any]:
        """Return a result; one of nothing only where an earlier attempt may have done the work."""
        instance = context.get("ti")
        if result["outcome"] == "nothing_to_do" and getattr(instance, "try_number", 1) <= 1:
            raise AirflowSkipException("another run did it before, or there was nothing left")
        self.told = result
        return dict(result)
