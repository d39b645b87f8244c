"""A DAG for each job that works on one table: ``memwal_merge``, ``memwal_gc`` and so on."""

from __future__ import annotations

from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Param, task

from memwal_core.airflow.failures import no_vain_retries
from memwal_core.airflow.job_dag import job_dag
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.ingest.request import IngestRequest

THEN_MERGE = {
    "then_merge": Param(
        False,
        type="boolean",
        title="Merge afterwards",
        description="Start the merge of the table when the batch is written.",
        section="Regions",
    )
}


@task(doc_md="Says which table is to be merged, if that was asked for.")
@no_vain_retries
def merge_parameters(params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of the merge.

    Raises:
        AirflowSkipException: It was not asked for.
    """
    from airflow.providers.common.compat.sdk import AirflowSkipException

    asked = params or {}
    if not asked["then_merge"]:
        raise AirflowSkipException("the merge was not asked for")
    return {"table": asked["table"]}


for request in REQUESTS:
    # The cycle has a DAG of its own, with a task for each step of each table.
    if request is not MaintainRequest and not request.info.by_hand:
        dag = job_dag(request, __file__, THEN_MERGE if request is IngestRequest else None)
        globals()[dag.dag_id] = dag

with globals()["memwal_ingest"] as ingest:
    parameters = merge_parameters()
    start_merge = TriggerDagRunOperator(
        task_id="start_merge",
        doc_md="Starts the merge of the table; one too many has nothing to do.",
        trigger_dag_id="memwal_merge",
        conf=parameters,
    )
    ingest.get_task("verify") >> parameters >> start_merge
