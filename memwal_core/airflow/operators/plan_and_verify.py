"""The tasks before and after the work of a run: its plan and its verification, in this worker or as applications."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import Asset

from memwal_core.airflow.assets import tell_changes, triggering_events
from memwal_core.airflow.defaults import holder_of
from memwal_core.airflow.failures import no_vain_retries, tell_failure
from memwal_core.airflow.operators.spark import SparkWork
from memwal_core.airflow.params import refuse_ignored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk.definitions.context import Context

    from memwal_core.errors import MemwalError


class PlanWork(SparkWork):
    """Plans a job, and returns the pieces of its work.

    What is too large to be planned here is planned by the application that does it. A dry run of it, and the plan that
    a person has to agree to, is an application of its own, whose log is part of this task's.

    Args:
        shows: Whether a person agrees to the plan before anything is changed.
        **arguments: Of ``SparkWork``.
    """

    def __init__(self, *, starts: Sequence[Asset], shows: bool, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.starts = tuple(starts)
        self.shows = shows
        self.items: list[dict[str, Any]] = []

    @no_vain_retries
    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the base class returns nothing
        """Plan.

        Raises:
            AirflowSkipException: There is nothing to do, or nothing may be done.
            InvalidRequestError: Airflow hears only a part of how the run is configured.
            MemwalError: As ``plan_work``.
        """
        from memwal_core.airflow.tasks.work import only_plans, plan_work, plans_elsewhere

        events = triggering_events(self.starts, context)
        if context.get("triggering_asset_events") and not events and not context["params"].get("table"):
            raise AirflowSkipException(
                "cycles changed the tables, and go on with them by themselves, or no event names a table"
            )
        refuse_ignored(context)

        def tell(table: str, error: MemwalError) -> None:
            self.log.error("%s: left out: %s", table, error)
            tell_failure({**context, "exception": error, "params": {"table": table}})

        attempt = context["ti"]
        is_last = attempt.try_number > attempt.max_tries
        items = plan_work(self.job, context["params"], events, run_name(context), left_out=tell, is_last=is_last)
        for item in plans_elsewhere(items, shown=self.shows):
            self.submit(item, context)
        due = [dict(item) for item in items if not only_plans(item)]
        if not due:
            raise AirflowSkipException("nothing to do, or a dry run; the log above says why")
        self.items = due  # For the link to the table's page.
        return due


class VerifyWork(SparkWork):
    """Reads the tables of a run anew, and finds what its work promised.

    What of that grows with a table is an application of its own where the table is large.

    Args:
        **arguments: Of ``SparkWork``.
    """

    template_fields: Sequence[str] = ("items", "done")

    def __init__(self, *, items: Any, done: Any, **arguments: Any) -> None:  # noqa: ANN401
        """Keep the values."""
        super().__init__(**arguments)
        self.items = items
        self.done = done

    @no_vain_retries
    def execute(self, context: Context) -> Any:  # noqa: ANN401 - the base class returns nothing
        """Return what was found.

        Raises:
            AirflowSkipException: Nothing was changed.
            MemwalError: As ``verify_work``.
        """
        from memwal_core.airflow.tasks.work import (
            WorkResult,
            proofs_elsewhere,
            require_handed,
            require_job,
            verify_work,
        )

        require_job(self.items, self.job)
        results, holder = list(self.done or ()), holder_of(context)
        require_handed(results, WorkResult)
        if not results or self.items[0]["request"].get("dry_run", False):
            raise AirflowSkipException("nothing was changed, so there is nothing to verify")
        for item in proofs_elsewhere(self.items, holder):
            self.submit(item, context)
        changes: list[Any] = list(verify_work(self.items, results, holder))
        tell_changes(self.outlets, changes, context)
        return "; ".join(f"{change['table']}: {change['summary']}" for change in changes)


def run_name(context: Mapping[str, Any]) -> str:
    """Return what stays the same when tasks of a run are cleared, or its date is run again."""
    logical_date = context["dag_run"].logical_date
    return logical_date.isoformat() if logical_date is not None else str(context["run_id"])
