"""The merge of one table: plan it, run it as Spark jobs, prove the result."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task

from memwal_airflow.assets import BASE_TABLE
from memwal_airflow.defaults import DEFAULT_ARGUMENTS, holder_of, pool_for
from memwal_airflow.operators.leases import hold_for, release
from memwal_airflow.operators.spark import SPARK_CONNECTION, MaintenanceJob, as_spark_job, job_file
from memwal_airflow.params import STORAGE_PARAMS, dry_run_param, regions_param, table_param

DOC = """
### Merge the flushed MemTables of one table into its base table

Writers leave flushed MemTables behind. This DAG brings them into the base table, in the order in which they were
written, and records how far it came in the same commit as the rows.

| Task | What it does |
|---|---|
| `plan` | reads the table and logs a verdict for every region; divides the work into jobs. Changes nothing |
| `hold` | takes the lease of the table's merge for this run; waits while another run has it |
| `merge` | one Spark job per entry of the plan, one at a time; executors read, the driver commits |
| `verify` | reads the table anew: the planned progress is recorded, every primary key occurs once |
| `release` | gives the lease back, whatever happened |

A merge that changed the table starts the index catch-up.

**When is it safe?** Always. Writers go on writing. Running it twice is a no-op that says so: `merge` and `verify` are
then *skipped*. Stopping it in the middle loses nothing, what is committed stays, and the next run goes on from there.

**What do failures mean?**

| Exit code of the job | Meaning | What happens |
|---|---|---|
| 2 | wrong input | fails at once; correct the parameters |
| 4 | conflict with another writer of the base table, or storage did not answer | tried again, with growing waits |
| 5 | a region needs a person (a generation is missing), or the lease is lost | fails at once; see `docs/runbooks` |

**Never** delete anything below `_mem_wal/` by hand, and start no second writer to get a region going.

**It needs** the Spark connection `spark_default`, and `memwal_core` where tasks, drivers and executors run. The job
files are expected in `jobs/` beside the DAG folder; the variable `MAINTENANCE_JOBS_FOLDER` of Airflow's processes names
another place, and `MAINTENANCE_RETRIES` another number of retries than 4. Credentials of the object store belong in a
connection of type `lance` or in the environment of the workers, not into the parameters.
"""

MIB = 1024 * 1024

PARAMS = {
    "table": table_param(optional=False),
    "dry_run": dry_run_param(),
    "regions": regions_param(),
    "max_bytes": Param(
        None,
        type=["null", "integer"],
        minimum=MIB,
        maximum=1024 * 1024 * MIB,
        title="Bytes per commit",
        description="Arrow bytes of flushed MemTables that one commit, and one Spark job, takes on; the first is "
        "always taken. Less needs less memory. Empty: MEMWAL_MERGE__MAX_BYTES of the workers, by default 1 GiB.",
        section="Bounds",
    ),
    **STORAGE_PARAMS,
}


with DAG(
    "memwal_merge",
    description="Merge a table's flushed MemTables into its base table, in order and exactly once.",
    doc_md=DOC,
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["memwal", "merge"],
    default_args=DEFAULT_ARGUMENTS,
    params=PARAMS,
):

    @task(doc_md="Reads the table, logs a verdict for every region, and divides the work into Spark jobs.")
    def plan(params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return one entry per Spark job."""
        from memwal_core.tasks.merge import plan_merge

        return plan_merge(params)

    @task(
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=[BASE_TABLE],
        doc_md="Reads the table anew: the planned progress is recorded, and every primary key occurs once.",
    )
    def verify(jobs: list[dict[str, Any]], **context: Any) -> str:  # noqa: ANN401
        """Return what was found.

        Raises:
            AirflowSkipException: There was nothing to do.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        from memwal_core.tasks.merge import verify_merge

        if not jobs:
            raise AirflowSkipException("nothing was merged, so there is nothing to verify; the log of plan says why")
        result = verify_merge(jobs, holder_of(context))
        context["outlet_events"][BASE_TABLE].extra = result
        return result["summary"]

    planned = plan()
    hold = hold_for(planned)
    hold.as_setup()
    merge = MaintenanceJob.partial(
        task_id="merge",
        doc_md="Merges the regions of one entry of the plan; repeating it is harmless.",
        application=job_file("merge.py", __file__),
        conn_id=SPARK_CONNECTION,
        max_active_tis_per_dagrun=1,
        map_index_template="{{ task.name }}",
        **pool_for("merge"),
    ).expand_kwargs(hold.output.map(as_spark_job))
    verified = verify(planned)
    merge >> verified
    [merge, verified] >> release(hold.output).as_teardown(setups=hold)
