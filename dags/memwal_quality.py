"""Data-quality checks of tables: plan them, run them on Spark, judge what they found."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task

from memwal_airflow.assets import BASE_TABLE, triggering_events
from memwal_airflow.defaults import DEFAULT_ARGUMENTS, holder_of, pool_for
from memwal_airflow.operators.spark import SPARK_CONNECTION, MaintenanceJob, as_spark_job, job_file
from memwal_airflow.params import STORAGE_PARAMS, dry_run_param, table_param

DOC = """
### Check the data of a table before and after merges

| Task | What it does |
|---|---|
| `plan` | reads the table and logs what there is to check. Changes nothing |
| `check` | one Spark job per table and stage; Great Expectations judges what executors read |
| `verdict` | logs every check; fails if one failed, with the address of the runbook |

**Before a merge** the flushed MemTables are audited: schema, complete keys, rows that belong to another region, and
your own suites. One that fails is *held*: merges leave it and what follows it in its region, and go on everywhere else,
until somebody repairs it or lets it pass with `memwal quality --release`. **After a merge** the base table is checked:
every key once, the number of rows, deleted keys gone, indexes that answer like a scan. This stage starts by itself
after each merge that changed a table.

**When is it safe?** Always: rows are never changed. Checks after a merge that run *during* the next one may report row
counts that are about to become right; run them again before you act.

**What do failures mean?** Wrong input fails at once. Storage failures are tried again. A failed `verdict` needs a
person: see `docs/runbooks/held-generations.md` and `docs/runbooks/check-failed.md`.
"""

PARAMS = {
    "table": table_param(optional=True),
    "stage": Param(
        "after",
        type="string",
        enum=["before", "after", "both"],
        title="Stage",
        description="Before: audit the flushed MemTables that wait. After: check the base table.",
    ),
    "dry_run": dry_run_param(),
    "suites": Param(
        [],
        type="array",
        items={"type": "string", "pattern": "\\.(json|py)$"},
        uniqueItems=True,
        title="Suites",
        description="Files with expectations for the rows of flushed MemTables, where the Spark driver runs. Python "
        "files are executed.",
        section="Checks",
    ),
    "docs": Param(
        None,
        type=["null", "string"],
        minLength=1,
        title="Data Docs",
        description="Directory or s3://bucket/prefix for the pages of the results. Empty: none are written.",
        section="Checks",
    ),
    **STORAGE_PARAMS,
}


with DAG(
    "memwal_quality",
    description="Check flushed MemTables before a merge and the base table after it.",
    doc_md=DOC,
    schedule=[BASE_TABLE],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["memwal", "quality"],
    default_args=DEFAULT_ARGUMENTS,
    params=PARAMS,
):

    @task(doc_md="Reads the tables and logs what there is to check.")
    def plan(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return one entry per Spark job."""
        from memwal_core.tasks.quality import plan_quality

        return plan_quality(params, triggering_events([BASE_TABLE], context), holder_of(context))

    @task(
        trigger_rule=TriggerRule.NONE_FAILED,
        doc_md="Logs every check, and fails with the address of the runbook if one failed.",
    )
    def verdict(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return what was checked.

        Raises:
            AirflowSkipException: There was nothing to check.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        from memwal_core.tasks.quality import judge_quality

        if not jobs:
            raise AirflowSkipException("nothing was checked; the log of plan says why")
        return judge_quality(jobs)

    planned = plan()
    check = MaintenanceJob.partial(
        task_id="check",
        doc_md="Runs one stage of the checks of one table; repeating it is harmless.",
        application=job_file("quality.py", __file__),
        conn_id=SPARK_CONNECTION,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.name }}",
        **pool_for("quality"),
    ).expand_kwargs(planned.map(as_spark_job))
    check >> verdict(planned)
