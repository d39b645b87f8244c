"""The whole cycle of every registered table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, TriggerRule, task, task_group

from memwal_core.airflow.assets import assets_of
from memwal_core.airflow.defaults import DEFAULT_ARGUMENTS, RUN_TIMEOUT, deadlines, holder_of, pool_for, schedule
from memwal_core.airflow.failures import no_vain_retries, tell_timed_out
from memwal_core.airflow.operators.cycle import HELD, LEFT_OUT, CycleStepWork
from memwal_core.airflow.operators.spark import jobs_folder
from memwal_core.airflow.params import refuse_ignored

DOC = """
### Maintain all registered tables: flush, audit, merge, verify, catch-up, check, compact, catch-up, snapshot, garbage

One run goes through the cycle of every registered table that is due, side by side, each step after the one that it
needs: what dead writers left in their WALs is flushed before the merge, indexes follow it, compaction needs indexes
that cover everything and makes Lance forget how far they are, the snapshot shows the result, and only then is it clear
what nobody needs any more.

| Task | What it does |
|---|---|
| `tables` | asks all registered tables (`MAINTENANCE_TABLES`) side by side; those go on whose last cycle is older \
than their `every_minutes` and that have anything to do |
| `cycle.begin` | records that the cycle of one table begins, from which its next one is counted; steps that it is \
certain not to have (no checks are asked for, the last count is recent) are *skipped* without a task of their own, and \
its log says why |
| `cycle.flush` | flushes regions whose writer is gone; at most every ten minutes (`MEMWAL_FLUSH__MIN_AGE_S`) |
| `cycle.audit`, `cycle.check` | the quality gate of a table whose entry says `checks = "mandatory"` or \
`"advisory"`: what was flushed before the merge, with the entry's `suites`, and the table after it; *skipped* where \
nothing has changed since. What fails the audit is left out of the merge; a check that fails freezes the table and \
fails its task; advisory ones only report |
| `cycle.verify` | counts all keys after merges, at most once an hour, where no checks do |
| the rest of `cycle` | one step each, in this order; a step with nothing to do is *skipped*, and the next one runs |
| `cycle.end` | records what the steps did, also of a cycle that failed, as `memwal maintain` does |

Each step plans first. A worker does what is small, and hands the rest to Spark; the log says which and why, and
`MEMWAL_DISPATCH__MAX_BYTES` and its siblings are the bounds.

What steps change, they tell as runs by hand do, by the assets `memwal_regions`, `memwal_base_table` and
`memwal_indexes`; the other DAGs of this platform leave these events to the cycle.

**When is it safe?** Always. Each step holds the lease of its job; what another run is doing is *skipped*.
Garbage and table versions go once they are older than `MEMWAL_RETENTION__HOURS` and nothing needs them, unless the
entry of the table says `collect_garbage = false` or `remove_versions = false`. A job that keeps failing pauses and is
*skipped*, and the others run. A table that fails stops its own cycle and no other. One that cannot be opened, or whose
entry is not understood, fails `cycle.begin` at once, and again every `MEMWAL_FLEET__REMIND_S` (4 hours) until that is
mended.

**What do failures mean?** Conflicts and storage failures are tried again with growing waits; what needs a person is
not: see `docs/runbooks`.

**Schedule**: `MAINTENANCE_SCHEDULE` of Airflow's processes, for example `*/5 * * * *`; none by default.
"""


# The steps: name, job, the step that it follows, what it does. The plan of the cycle is
# the library's (`memwal_core.jobs.cycle.plan`); a test compares them, and each task asks it whether its step runs and
# what it may change.
STEPS = (
    ("flush", "flush", None, "Flushes what writers that are gone left in their WALs."),
    ("audit", "quality", None, "Checks what was flushed before it is merged, if the table's entry wants checks."),
    ("merge", "merge", None, "Merges what was flushed into the base table."),
    ("verify", "verify", None, "Counts all keys after merges, at most once an hour."),
    ("catch_up", "catchup", None, "Extends the indexes over what was merged."),
    ("check", "quality", None, "Checks the table after merges, if its entry wants checks."),
    ("compact", "compact", None, "Rewrites small fragments, where that is worth it."),
    ("catch_up_again", "catchup", "compact", "Extends and records the indexes after the rewrite."),
    ("snapshot", "snapshot", None, "Publishes what readers need to know."),
    ("collect_garbage", "gc", None, "Deletes, or only lists, what nobody needs any more."),
)

# The steps that the first task of a cycle may leave out. They are skipped at that moment, so whatever comes after one
# waits for the step before it as well.
MAY_NEED_NO_TASK = frozenset({"audit", "verify", "check"})


with DAG(
    "memwal_maintain",
    description="The whole cycle of every registered table, from the flush to the collection of garbage.",
    doc_md=DOC,
    schedule=schedule(),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    # A run that is stuck with one table keeps no other from its next cycle: that one is left alone meanwhile.
    max_active_runs=16,
    dagrun_timeout=RUN_TIMEOUT,
    tags=["memwal", "maintain"],
    default_args=DEFAULT_ARGUMENTS,
    deadline=deadlines(),
    on_failure_callback=tell_timed_out,
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

    @task(
        doc_md="Asks all registered tables side by side, each for a limited time, which have work that is due.",
        execution_timeout=timedelta(minutes=30),
    )
    @no_vain_retries
    def tables(params: dict[str, Any] | None = None, **context: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Return one entry per table.

        Raises:
            AirflowSkipException: No table is due.
        """
        from airflow.providers.common.compat.sdk import AirflowSkipException

        from memwal_core.airflow.tasks.cycle import choose_cycle_tables
        from memwal_core.airflow.tasks.reminders import Reminders

        refuse_ignored({**context, "params": params})
        instance, key = context["ti"], "reminders"
        by_schedule = context["dag_run"].run_type == "scheduled"
        asked = params or {}

        def run_lives(run_id: str) -> bool:
            states = ["queued", "running"]
            return bool(instance.get_dr_count(context["dag"].dag_id, run_ids=[run_id], states=states))

        reminders = Reminders(
            instance.xcom_pull(task_ids=instance.task_id, key=key, map_indexes=-1, include_prior_dates=True)
        )
        chosen = choose_cycle_tables(
            asked["tables"],
            by_schedule=by_schedule,
            run_lives=run_lives,
            ignore_pauses=bool(asked.get("ignore_pauses")),
            reminders=reminders,
        )
        if by_schedule:
            instance.xcom_push(key, reminders.to_dict())
        if not chosen:
            raise AirflowSkipException("no registered table has work that is due; the log above says why")
        return chosen

    @task_group(tooltip="The cycle of one table")
    def cycle(table: dict[str, Any]) -> None:
        """Chain the steps."""

        @task(doc_md="Records that the cycle of the table begins.", map_index_template="{{ label }}")
        @no_vain_retries
        def begin(table: dict[str, Any], **context: Any) -> None:  # noqa: ANN401
            """Record it.

            Raises:
                DownstreamTasksSkipped: Some steps need no task.
            """
            from airflow.providers.common.compat.sdk import DownstreamTasksSkipped
            from airflow.sdk import get_current_context

            from memwal_core.airflow.tasks.cycle import await_tasks, begin_cycle, label_of

            get_current_context()["label"] = label_of(table)
            if needless := begin_cycle(table, holder_of(context)):
                instance, tasks = context["ti"], [f"cycle.{step}" for step in needless]
                one_cycle = {"map_index": instance.map_index, "run_ids": [instance.run_id]}
                await_tasks(lambda: instance.get_ti_count(instance.dag_id, task_ids=tasks, **one_cycle), len(tasks))
                raise DownstreamTasksSkipped(tasks=[(task, instance.map_index) for task in tasks])

        @task(doc_md="Records what the steps did.", map_index_template="{{ label }}")
        @no_vain_retries
        def end(table: dict[str, Any], **context: Any) -> str:  # noqa: ANN401
            """Return how the cycle ended."""
            from airflow.sdk import get_current_context

            from memwal_core.airflow.tasks.cycle import end_cycle, label_of

            get_current_context()["label"] = label_of(table)
            instance, steps = context["ti"], [step for step, *_ in STEPS]
            tasks = [f"cycle.{step}" for step in steps]
            said, held = (
                instance.xcom_pull(task_ids=tasks, key=key, map_indexes=instance.map_index) for key in (LEFT_OUT, HELD)
            )
            return end_cycle(
                table,
                holder_of(context),
                dict(zip(steps, said, strict=True)),
                [step for step, is_held in zip(steps, held, strict=True) if is_held is True],
            )

        begun = begin(table)
        begun.operator.as_setup()
        waited, done = list[Any]([begun]), dict[str, Any]()
        for name, job, follows, doc in STEPS:
            done[name] = CycleStepWork(
                task_id=name,
                doc_md=f"{doc} In a worker or on Spark, as its plan says; repeating it is harmless.",
                step=name,
                job=job,
                table=table,
                followed=done[follows].output if follows else None,
                jobs_folder=jobs_folder(__file__),
                outlets=assets_of(job),
                # Airflow wants the first rule after a setup, which is never skipped. What follows a step that was
                # skipped is skipped without a task of its own.
                trigger_rule=TriggerRule.NONE_FAILED if done and not follows else TriggerRule.ALL_SUCCESS,
                map_index_template="{{ task.label }}",
                **pool_for(job),
            )
            waited >> done[name]
            waited = [*(waited if name in MAY_NEED_NO_TASK else []), done[name]]
        # A teardown: it runs whatever became of the steps, and does not hide that one failed.
        waited >> end(table).as_teardown(setups=begun)

    cycle.expand(table=tables())
