"""The DAG of a job: plan, hold, work, verify, release; the same for every job, made from its request."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param, TriggerRule

from memwal_core.airflow.assets import ASSETS, assets_of
from memwal_core.airflow.defaults import AHEAD_OF_CYCLES, DEFAULT_ARGUMENTS, RUN_TIMEOUT, deadlines, is_on, pool_for
from memwal_core.airflow.failures import tell_timed_out
from memwal_core.airflow.operators.leases import hold_for, release
from memwal_core.airflow.operators.plan_and_verify import PlanWork, VerifyWork
from memwal_core.airflow.operators.spark import jobs_folder
from memwal_core.airflow.operators.work import LeasedWork
from memwal_core.airflow.params import params_of
from memwal_core.jobs.request import JobInfo, JobRequest


def job_dag(request_type: type[JobRequest], dag_file: str, more: Mapping[str, Param] | None = None) -> DAG:
    """Build the DAG of a job.

    Args:
        request_type: The job's request.
        dag_file: The DAG file that asks; the Spark applications are found from it.
        more: Further fields of its form.
    """
    info = request_type.info
    pool: dict[str, Any] = dict(pool_for(info.name))
    waits_for_people = info.may_need_approval and is_on(approval_variable(info))
    schedule = [ASSETS[name] for name in info.started_by]
    with DAG(
        f"memwal_{info.name}",
        description=info.summary,
        doc_md=info.guide,
        schedule=schedule or None,
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        max_active_runs=1,
        dagrun_timeout=None if waits_for_people else RUN_TIMEOUT,
        tags=["memwal", info.name],
        default_args={**DEFAULT_ARGUMENTS, "priority_weight": AHEAD_OF_CYCLES},
        deadline=deadlines(),
        on_failure_callback=tell_timed_out,
        params={**params_of(request_type), **(more or {})},
    ) as dag:
        applications: dict[str, Any] = {"job": info.name, "jobs_folder": jobs_folder(dag_file), **pool}
        planned = PlanWork(
            task_id="plan",
            doc_md="Reads the table, logs what is due and what keeps the rest, and divides the work. A plan that reads "
            "too much for a worker is the application's that does the work.",
            starts=schedule,
            shows=waits_for_people,
            **applications,
        )
        hold = hold_for(info.name, planned.output)
        hold.as_setup()  # type: ignore[no-untyped-call]
        if waits_for_people:
            planned >> approval(info) >> hold
        work = LeasedWork.partial(
            task_id="work",
            doc_md="Does one piece of work, in a worker or on Spark as the plan says. Doing it again is harmless.",
            map_index_template="{{ task.label }}",
            # One at a time: the pieces of a run commit to the same table.
            max_active_tis_per_dagrun=1,
            **applications,
        ).expand(item=hold.output)
        verified = VerifyWork(
            task_id="verify",
            doc_md="Reads the tables anew and finds what the work promised. Says what is due again. Where the keys of "
            "a whole table are counted, and there are many, an application counts them.",
            items=planned.output,
            done=work.output,
            trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
            outlets=assets_of(info.name),
            **applications,
        )
        [work, verified] >> release(hold.output).as_teardown(setups=hold)
    return dag


def approval_variable(info: JobInfo[Any]) -> str:
    """Return the environment variable that demands approval when it is on."""
    return f"MAINTENANCE_{info.name.upper()}_APPROVAL"


def approval(info: JobInfo[Any]) -> ApprovalOperator:
    """Return the task in which a person agrees, or does not; then everything after it is skipped."""
    return ApprovalOperator(
        task_id="approve",
        doc_md="Waits for a person. Reject: nothing is changed, and the rest of the run is skipped.",
        subject=f"May {info.name} change {{{{ params.table or 'the tables of this run' }}}}?",
        body="The log of the task `plan` lists what would be deleted and what stays.",
        execution_timeout=None,
        retries=3,  # Airflow may take an answer in the very first second for a lost task; then it asks again
    )
