"""The merge of one table: plan it, run each pass as a Spark job, prove the result."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param, TriggerRule, task
from memwal_spark_jobs import DEFAULT_ARGUMENTS, JOBS_FOLDER, SPARK_CONNECTION

DOC = """
"""

with DAG(
    "memwal_merge",
    description="Merge a table's flushed MemTables into its base table, in order and exactly once.",
    doc_md=DOC,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["memwal", "merge"],
    default_args=DEFAULT_ARGUMENTS,
    params={"table": Param(type="string", minLength=1, title="Table"),
       "dry_run": Param(False, type="boolean")},
) as dag:
    @task
    def plan(params: dict[str, Any] | None = None):
        from stubcore import plan
        return plan(params)

    def as_spark_job(item: dict[str, Any]) -> dict[str, Any]:
        return {"name": item["label"], "application_args": item["arguments"]}

    planned = plan()
    merge = SparkSubmitOperator.partial(
        task_id="merge",
        application=str(JOBS_FOLDER / "merge.py"),
        conn_id=SPARK_CONNECTION,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.name }}",
    ).expand_kwargs(planned.map(as_spark_job))

    @task(trigger_rule=TriggerRule.NONE_FAILED)
    def verify(passes, params=None):
        from airflow.sdk.exceptions import AirflowSkipException
        if not passes:
            raise AirflowSkipException("nothing to do")
        print("verified", passes)

    merge >> verify(planned)
