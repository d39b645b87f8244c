"""How the DAGs of catch-up, snapshot, compaction and garbage collection are built: plan, lease, work, verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, Param, TriggerRule, task

from memwal_airflow.assets import triggering_events
from memwal_airflow.defaults import DEFAULT_ARGUMENTS, pool_for
from memwal_airflow.operators.leases import hold_for, release
from memwal_airflow.operators.work import LeasedWork
from memwal_airflow.params import STORAGE_PARAMS, table_param


@dataclass(frozen=True)
class Step:
    """One kind of job.

    Attributes:
        job: Its name.
        description: One line.
        doc: Page in markdown.
        params: Fields of the form beside the table and its storage.
        schedule: Assets whose change starts a run.
        outlet: Asset that a run changes; None if nobody waits for one.
        approval: Whether a person must agree before anything is changed.
    """

    job: str
    description: str
    doc: str
    params: Mapping[str, Param]
    schedule: Sequence[Asset] = ()
    outlet: Asset | None = None
    approval: bool = False


def build(step: Step) -> DAG:
    """Build the DAG of a kind of job."""
    pool: dict[str, Any] = dict(pool_for(step.job))
    with DAG(
        f"memwal_{step.job}",
        description=step.description,
        doc_md=step.doc,
        schedule=list(step.schedule) or None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["memwal", step.job],
        default_args=DEFAULT_ARGUMENTS,
        params={"table": table_param(optional=bool(step.schedule)), **step.params, **STORAGE_PARAMS},
    ) as dag:

        @task(doc_md="Reads the table, logs what is due and what holds the rest, and divides the work.", **pool)
        def plan(params: Any = None, **context: Any) -> Any:  # noqa: ANN401
            """Return the pieces of work.

            Raises:
                AirflowSkipException: There is nothing to do, or nothing may be done.
            """
            from airflow.sdk.exceptions import AirflowSkipException

            from memwal_core.tasks.steps import plan_step

            items = plan_step(step.job, params, triggering_events(step.schedule, context))
            if not items:
                raise AirflowSkipException("nothing to do, or a dry run; the log above says why")
            return items

        @task(
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            doc_md="Reads the tables anew: nothing stands in the way of the job. Says what is due again.",
            **pool,
        )
        def verify(items: Any, done: Any) -> str:  # noqa: ANN401
            """Return what was found.

            Raises:
                AirflowSkipException: Nothing was changed.
            """
            from airflow.sdk.exceptions import AirflowSkipException

            from memwal_core.tasks.steps import verify_steps

            results = list(done or ())
            if not results:
                raise AirflowSkipException("nothing was changed, so there is nothing to verify")
            return verify_steps(items, results)

        planned = plan()
        hold = hold_for(planned)
        hold.as_setup()  # type: ignore[no-untyped-call]
        if step.approval:
            planned >> approval(step.job) >> hold
        work = LeasedWork.partial(
            task_id="work",
            doc_md="Does one piece of work under its lease. Doing it again is harmless.",
            map_index_template="{{ task.item.label }}",
            outlets=[step.outlet] if step.outlet is not None else [],
            max_active_tis_per_dagrun=2,
            **pool,
        ).expand(item=hold.output)
        verified = verify(planned, work.output)
        [work, verified] >> release(hold.output).as_teardown(setups=hold)
    return dag


def approval(job: str) -> ApprovalOperator:
    """Return the task in which a person agrees, or does not; then everything after it is skipped."""
    return ApprovalOperator(
        task_id="approve",
        doc_md="Waits for a person. Reject: nothing is changed, and the rest of the run is skipped.",
        subject=f"May {job} change {{{{ params.table or 'the tables of this run' }}}}?",
        body="The log of the task `plan` lists what would be deleted and what stays.",
        retries=3,  # Airflow may take an answer in the very first second for a lost task; then it asks again
    )
