"""How the DAGs of catch-up, snapshot, compaction and garbage collection are built: plan, lease, work, give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Asset, Param, task

from memwal_leases import hold_for, release
from memwal_spark_jobs import DEFAULT_ARGUMENTS, STORAGE_PARAMS, holder_of, pool_for, table_param


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
    tags: Sequence[str] = field(default=())


def build(step: Step) -> DAG:
    """Build the DAG of a kind of job."""
    pool = pool_for(step.job)
    with DAG(
        f"memwal_{step.job}",
        description=step.description,
        doc_md=step.doc,
        schedule=list(step.schedule) or None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        tags=["memwal", step.job, *step.tags],
        default_args=DEFAULT_ARGUMENTS,
        params={"table": table_param(optional=bool(step.schedule)), **step.params, **STORAGE_PARAMS},
    ) as dag:

        @task(doc_md="Reads the table, logs what is due and what holds the rest, and divides the work.", **pool)
        def plan(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401
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
            doc_md="Does one piece of work under its lease. Doing it again is harmless.",
            map_index_template="{{ label }}",
            outlets=[step.outlet] if step.outlet is not None else [],
            max_active_tis_per_dagrun=2,
            **pool,
        )
        def work(item: dict[str, Any], **context: Any) -> dict[str, Any]:  # noqa: ANN401
            """Return what was done.

            Raises:
                AirflowSkipException: There was nothing left to do.
            """
            from airflow.sdk import get_current_context
            from airflow.sdk.exceptions import AirflowSkipException

            from memwal_core.tasks.steps import run_step

            get_current_context()["label"] = item["label"]
            result = run_step(item, holder_of(context))
            if result["outcome"] == "nothing_to_do":
                raise AirflowSkipException("somebody else did it before, or there was nothing left")
            if step.outlet is not None:
                context["outlet_events"][step.outlet].extra = result
            return result

        planned = plan()
        hold = hold_for(planned)
        hold.as_setup()
        if step.approval:
            planned >> approval(step.job) >> hold
        worked = work.expand(item=hold.output)
        worked >> release(hold.output).as_teardown(setups=hold)
    return dag


def triggering_events(assets: Sequence[Asset], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what earlier runs said about the tables that they changed; nothing in a run by hand."""
    triggering = context.get("triggering_asset_events") or {}
    return [event.extra for asset in assets if asset in triggering for event in triggering[asset]]


def approval(job: str) -> ApprovalOperator:
    """Return the task in which a person agrees, or does not; then everything after it is skipped."""
    return ApprovalOperator(
        task_id="approve",
        doc_md="Waits for a person. Reject: nothing is changed, and the rest of the run is skipped.",
        subject=f"May {job} change {{{{ params.table or 'the tables of this run' }}}}?",
        body="The log of the task `plan` lists what would be deleted and what stays.",
        retries=3,  # Airflow may take an answer in the very first second for a lost task; then it asks again
    )
