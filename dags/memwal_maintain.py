"""The whole cycle of every registered table."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task, task_group

from memwal_core.airflow.defaults import DEFAULT_ARGUMENTS, holder_of, pool_for
from memwal_core.airflow.operators.spark import SparkWork, jobs_folder

DOC = """
### Maintain all registered tables: flush, merge, catch-up, compact, catch-up, snapshot, garbage

One run goes through the cycle of every registered table that is due, side by side, each step after the one that it
needs: what dead writers left in their WALs is flushed before the merge, indexes follow it, compaction needs indexes
that cover everything and makes Lance forget how far they are, the snapshot shows the result, and only then is it clear
what nobody needs any more.

| Task | What it does |
|---|---|
| `tables` | the registered tables (`MAINTENANCE_TABLES`) whose last cycle is older than their `every_minutes` |
| `cycle.begin` | records that the cycle of one table begins, from which its next one is counted |
| `cycle.flush` | flushes regions whose writer is gone; at most every ten minutes (`MEMWAL_FLUSH__MIN_AGE_S`) |
| `cycle.prepare` | plans the merge of one table, and skips the Spark job if there is nothing to merge |
| `cycle.merge` | the Spark job |
| the rest of `cycle` | one step each, in this order; a step with nothing to do is *skipped* and the next one runs |
| `cycle.end` | records what the steps did, also of a cycle that failed, as `memwal maintain` does |

**When is it safe?** Always. Each step holds the lease of its job, so that it never does what another run is doing.
Garbage and table versions go once they are older than `MEMWAL_RETENTION__HOURS` and nothing needs them, unless the
entry of the table says `collect_garbage = false` or `remove_versions = false`. A job that keeps failing pauses and is
*skipped*, and the others run. A table that fails stops its own cycle and no other.

**What do failures mean?** Conflicts and storage failures are tried again with growing waits; what needs a person is
not: see `docs/runbooks`.

**Schedule**: `MAINTENANCE_SCHEDULE` of Airflow's processes, for example `*/5 * * * *`; none by default.
"""


# The steps before and after the merge: name, job, the step that it follows, what it does. The plan of the cycle is
# the library's (`memwal_core.jobs.cycle.plan`); a test compares them, and each task asks it whether its step runs and
# what it may change.
FLUSH = ("flush", "flush", None, "Flushes what writers that are gone left in their WALs.")
STEPS = (
    ("catch_up", "catchup", None, "Extends the indexes over what was merged."),
    ("compact", "compact", None, "Rewrites small fragments, where that is worth it."),
    ("catch_up_again", "catchup", "compact", "Extends and records the indexes after the rewrite."),
    ("snapshot", "snapshot", None, "Publishes what readers need to know."),
    ("collect_garbage", "gc", None, "Deletes, or only lists, what nobody needs any more."),
)


def step_task(name: str, job: str, doc: str, rule: TriggerRule = TriggerRule.NONE_FAILED) -> Any:  # noqa: ANN401
    """Return the task of one step of the cycle."""

    @task(
        task_id=name,
        doc_md=doc,
        trigger_rule=rule,
        map_index_template="{{ label }}",
        **pool_for(job),
    )
    def run(table: dict[str, Any], followed: dict[str, Any] | None = None, **context: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return what was done.

        Raises:
            AirflowSkipException: There was nothing to do, or the plan leaves the step out.
        """
        from airflow.sdk import get_current_context
        from airflow.sdk.exceptions import AirflowSkipException

        from memwal_core.airflow.tasks.cycle import cycle_step

        get_current_context()["label"] = table["label"]
        result = cycle_step(name, table, holder_of(context), followed)
        if not result["ran"]:
            raise AirflowSkipException(result["why"])
        if result["outcome"] in ("nothing_to_do", "planned"):
            raise AirflowSkipException(f"{result['outcome'].replace('_', ' ')}; the log above says why")
        return result

    return run


with DAG(
    "memwal_maintain",
    description="The whole cycle of every registered table, from the flush to the collection of garbage.",
    doc_md=DOC,
    schedule=os.environ.get("MAINTENANCE_SCHEDULE") or None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["memwal", "maintain"],
    default_args=DEFAULT_ARGUMENTS,
    params={
        "tables": Param(
            [],
            type="array",
            items={"type": "string", "minLength": 1},
            uniqueItems=True,
            title="Tables",
            description="Names of registered tables, one per line, whether due or not. Empty: by hand all, by "
            "schedule those that are due.",
        ),
        "ignore_pauses": Param(
            False,
            type="boolean",
            title="Ignore pauses",
            description="Run jobs that pause because they kept failing.",
        ),
    },
):

    @task(doc_md="Chooses the registered tables that are due.")
    def tables(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return one entry per table.

        Raises:
            AirflowSkipException: No table is due.
        """
        from airflow.sdk.exceptions import AirflowSkipException

        from memwal_core.airflow.tasks.cycle import choose_cycle_tables

        by_schedule = context["dag_run"].run_type == "scheduled"
        asked = params or {}
        chosen = choose_cycle_tables(
            asked["tables"], by_schedule=by_schedule, ignore_pauses=bool(asked.get("ignore_pauses"))
        )
        if not chosen:
            raise AirflowSkipException("no registered table is due; the log above says when each ran")
        return chosen

    @task_group(tooltip="The cycle of one table")
    def cycle(table: dict[str, Any]) -> None:
        """Chain the steps."""

        @task(
            doc_md="Plans the merge of the table.",
            trigger_rule=TriggerRule.NONE_FAILED,
            map_index_template="{{ label }}",
        )
        def prepare(table: dict[str, Any]) -> dict[str, Any]:
            """Return the merge as a piece of work.

            Raises:
                AirflowSkipException: There is nothing to merge.
            """
            from airflow.sdk import get_current_context
            from airflow.sdk.exceptions import AirflowSkipException

            from memwal_core.airflow.tasks.cycle import prepare_merge

            get_current_context()["label"] = table["label"]
            item = prepare_merge(table)
            if item is None:
                raise AirflowSkipException("nothing to merge; the log above says why")
            return dict(item)

        @task(doc_md="Records that the cycle of the table begins.", map_index_template="{{ label }}")
        def begin(table: dict[str, Any], **context: Any) -> None:  # noqa: ANN401
            """Record it."""
            from airflow.sdk import get_current_context

            from memwal_core.airflow.tasks.cycle import begin_cycle

            get_current_context()["label"] = table["label"]
            begin_cycle(table, holder_of(context))

        @task(doc_md="Records what the steps did.", map_index_template="{{ label }}")
        def end(table: dict[str, Any], **context: Any) -> str:  # noqa: ANN401
            """Return how the cycle ended."""
            from airflow.sdk import get_current_context

            from memwal_core.airflow.tasks.cycle import end_cycle

            get_current_context()["label"] = table["label"]
            return end_cycle(table, holder_of(context))

        name, job, _, doc = FLUSH
        prepared, begun = prepare(table), begin(table)
        begun.operator.as_setup()
        # Airflow wants it so after a setup, which is never skipped.
        begun >> step_task(name, job, doc, TriggerRule.ALL_SUCCESS)(table) >> prepared
        merge = SparkWork(
            task_id="merge",
            doc_md="Merges the table; repeating it is harmless.",
            job="merge",
            item=prepared,
            jobs_folder=jobs_folder(__file__),
            map_index_template="{{ task.label }}",
            **pool_for("merge"),
        )
        last, done = merge, dict[str, Any]()
        for name, job, follows, doc in STEPS:
            done[name] = step_task(name, job, doc)(table, done.get(follows))
            last >> done[name]
            last = done[name]
        # A teardown: it runs whatever became of the steps, and does not hide that one failed.
        last >> end(table).as_teardown(setups=begun)

    cycle.expand(table=tables())
