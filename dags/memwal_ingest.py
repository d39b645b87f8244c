"""The ingestion of one batch: plan it, run it as a Spark job, read its record."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, TriggerRule, task

from memwal_airflow.assets import REGIONS
from memwal_airflow.defaults import DEFAULT_ARGUMENTS, holder_of, pool_for
from memwal_airflow.operators.spark import SPARK_CONNECTION, MaintenanceJob, as_spark_job, job_file
from memwal_airflow.params import STORAGE_PARAMS, table_param

DOC = """
### Write a batch of rows into the regions of one table

Rows from files, tables or another Lance table become rows of regions: checked, divided by the region spec, written by
one task per region, flushed. The next merge brings them into the base table.

| Task | What it does |
|---|---|
| `plan` | looks whether the batch is written already, and says what is left. Changes nothing |
| `ingest` | the Spark job; executors check all rows first, and one bad row refuses the batch |
| `verify` | reads the record of the batch anew: rows and regions |
| `merge_parameters`, `start_merge` | only if **Merge afterwards** is on: start `memwal_merge` for the table |

**When is it safe?** Always. A batch id is written once: running it again, clearing tasks and two runs at once change
nothing, also if later batches have changed the same keys; `ingest` and `verify` are then *skipped*. A run that died in
the middle goes on with the regions that are missing. Give other rows another batch id.

**What do failures mean?**

| Exit code of the job | Meaning | What happens |
|---|---|---|
| 2 | rows or parameters do not fit; the log shows sample rows, and nothing was written | fails at once; correct it |
| 4 | another live writer has a region, or storage or executors failed | tried again, with growing waits |
| 5 | a writer of others took a region over, or a region is damaged | fails at once; see `docs/runbooks` |

**Take over** stops other writers of the regions that the batch needs; what they have acknowledged stays.

**It needs** the Spark connection `spark_default`, and sources that the executors reach.
"""

PARAMS = {
    "table": table_param(optional=False),
    "sources": Param(
        type="array",
        items={"type": "string", "minLength": 1},
        minItems=1,
        title="Sources",
        description="Files, directories, addresses, or names of tables, one per line.",
    ),
    "format": Param(
        None,
        type=["null", "string"],
        enum=[None, "parquet", "csv", "json", "lance", "table"],
        title="Format",
        description="What the sources are. Empty: told from the suffix.",
    ),
    "dry_run": Param(
        False,
        type="boolean",
        title="Dry run",
        description="Only check the rows and count them by region: the log of the job says the numbers.",
    ),
    "batch": Param(
        None,
        type=["null", "string"],
        minLength=1,
        title="Batch",
        description="Id of the batch, which is written once. Empty: the logical date or the id of the run.",
        section="Batch",
    ),
    "stream": Param(
        "memwal_ingest",
        type="string",
        minLength=1,
        title="Stream",
        description="Whose batch it is: the same id in another stream is another batch.",
        section="Batch",
    ),
    "order_by": Param(
        None,
        type=["null", "string"],
        minLength=1,
        title="Order by",
        description="Column that tells which row of a key is the newest. Empty: the last one in the source.",
        section="Rows",
    ),
    "delete_column": Param(
        None,
        type=["null", "string"],
        minLength=1,
        title="Delete column",
        description="Boolean column that is true on rows to delete. Empty: all rows are written.",
        section="Rows",
    ),
    "suites": Param(
        [],
        type="array",
        items={"type": "string", "pattern": "\\.(json|py)$"},
        uniqueItems=True,
        title="Suites",
        description="Files with expectations for the rows, where the Spark driver runs, beside those registered for "
        "the table. Python files are executed.",
        section="Rows",
    ),
    "takeover": Param(
        "fail",
        type="string",
        enum=["fail", "fence"],
        title="Take over",
        description="What to do about a region whose writer seems alive: fail and try again, or stop that writer.",
        section="Regions",
    ),
    "then_merge": Param(
        False,
        type="boolean",
        title="Merge afterwards",
        description="Start the merge of the table when the batch is written.",
        section="Regions",
    ),
    **STORAGE_PARAMS,
}


def default_batch(context: dict[str, Any]) -> str:
    """Return what stays the same when tasks of a run are cleared, or its date is run again."""
    logical_date = context["dag_run"].logical_date
    return logical_date.isoformat() if logical_date is not None else context["run_id"]


with DAG(
    "memwal_ingest",
    description="Write a batch of rows into the regions of a table, once per batch id.",
    doc_md=DOC,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["memwal", "ingest"],
    default_args=DEFAULT_ARGUMENTS,
    params=PARAMS,
):

    @task(doc_md="Looks whether the batch is written already, and says what is left.")
    def plan(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return the Spark job; nothing if the batch was written before."""
        from memwal_core.tasks.ingest import plan_ingest

        return plan_ingest(params, default_batch(context), holder_of(context))

    @task(
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=[REGIONS],
        doc_md="Reads the record of the batch anew: rows and regions.",
    )
    def verify(jobs: list[dict[str, Any]], **context: Any) -> str:  # noqa: ANN401
        """Return what was found.

        Raises:
            AirflowSkipException: There was nothing to do, or nothing was to be changed.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        from memwal_core.tasks.ingest import verify_ingest

        if not jobs or jobs[0]["dry_run"]:
            raise AirflowSkipException("nothing was written, so there is nothing to verify; the log of plan says why")
        result = verify_ingest(jobs)
        context["outlet_events"][REGIONS].extra = result
        return result["summary"]

    @task(doc_md="Says which table is to be merged, if that was asked for.")
    def merge_parameters(params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the parameters of the merge.

        Raises:
            AirflowSkipException: It was not asked for.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        asked = params or {}
        if not asked["then_merge"]:
            raise AirflowSkipException("the merge was not asked for")
        return {name: asked[name] for name in ("table", "storage_connection", "storage_options")}

    planned = plan()
    ingest = MaintenanceJob.partial(
        task_id="ingest",
        doc_md="Checks and writes the batch; repeating it is harmless.",
        application=job_file("ingest.py", __file__),
        conn_id=SPARK_CONNECTION,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.name }}",
        **pool_for("ingest"),
    ).expand_kwargs(planned.map(as_spark_job))
    verified = verify(planned)
    parameters = merge_parameters()
    start_merge = TriggerDagRunOperator(
        task_id="start_merge",
        doc_md="Starts the merge of the table; one too many has nothing to do.",
        trigger_dag_id="memwal_merge",
        conf=parameters,
    )
    ingest >> verified >> parameters >> start_merge
