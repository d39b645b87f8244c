"""A step of a table's cycle: planned, and done where its plan sends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import AirflowSkipException

from memwal_core.airflow.assets import tell_changes
from memwal_core.airflow.defaults import holder_of, shown_label
from memwal_core.airflow.failures import no_vain_retries
from memwal_core.airflow.operators.lineage import TellsLineage
from memwal_core.airflow.operators.spark import SparkWork

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

    from memwal_core.airflow.tasks.work import WorkItem, WorkResult

LEFT_OUT = "left_out"
"""Key of what a step that is skipped leaves for the end of the cycle: why."""

HELD = "held"
"""Key of what it leaves if that is another run's lease: true."""


class CycleStepWork(TellsLineage, SparkWork):
    """Plans one step of a table's cycle, and does it under a lease of its own: in this worker, or as an application.

    Args:
        table: The table, as the task that chose it returned it; ``{{ task.label }}`` names the mapped task.
        followed: The result of the step that this one follows; None if it follows none.
        **arguments: Of ``SparkWork``.
    """

    template_fields: Sequence[str] = ("table", "followed")

    def __init__(self, *, step: str, table: Any, followed: Any = None, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.step = step
        self.item: WorkItem | None = None
        self.table = table
        self.followed = followed

    @property
    def label(self) -> str:
        """The name of the table, once it is known."""
        return shown_label(self.table.get("label", "")) if isinstance(self.table, dict) else ""

    @no_vain_retries
    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the base class returns nothing
        """Plan the step, and do it.

        Raises:
            AirflowSkipException: There was nothing to do, the plan of the cycle leaves the step out, or another run
                does it just now.
            MemwalError: As ``do_work``; a step that needs a person ends the cycle of its table.
        """
        from memwal_core.airflow.tasks.cycle import change_of, done_before, prepare_step, require_passed, step_result
        from memwal_core.jobs.cycle.plan import LeftOut

        found = prepare_step(self.step, self.table, self.followed)
        if isinstance(found, LeftOut):
            before = done_before(self.step, self.table, holder_of(context)) if context["ti"].try_number > 1 else None
            if before is None:
                _leave_out(context, found.why, found.why)
            item, done = before
        else:
            item, done = found, self._do(found, context)
        self.item = item
        result = step_result(self.step, done)
        require_passed(item, result["outcome"])
        if result["outcome"] == "nothing_to_do":
            raise AirflowSkipException("nothing to do; the log above says why")
        self.told = result["result"]
        tell_changes(self.outlets, [change_of(result["result"])], context, in_cycle=True)
        return dict(result)

    def _do(self, item: WorkItem, context: Context) -> WorkResult:
        from memwal_core.airflow.tasks.on_spark import failure_recorded, recorded_runs, result_of
        from memwal_core.airflow.tasks.work import do_work, require_free
        from memwal_core.coordination.lease import LeaseHeldError

        holder = holder_of(context)
        try:
            if not item["to_spark"]:
                return do_work(item, holder)
            require_free(item, holder)
        except LeaseHeldError as error:
            # As in a cycle of the library: no failure of the job, and a conflict of the cycle.
            context["ti"].xcom_push(HELD, True)
            _leave_out(context, error.what, str(error))
        before = recorded_runs(item, holder)
        with failure_recorded(item, holder, before):
            self.submit(item, context)
        return result_of(item, holder, before)


def _leave_out(context: Context, why: str, told: str) -> NoReturn:
    context["ti"].xcom_push(LEFT_OUT, why)
    raise AirflowSkipException(told) from None
