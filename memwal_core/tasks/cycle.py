"""The cycle of one table: which tables are due, and what each step gets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from memwal_core.admin import MergeRequest
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.tasks.registry import RegisteredTable, load_registry
from memwal_core.tasks.steps import StepResult, WorkItem, run_step
from memwal_core.tasks.targets import Target, as_target, open_target

CYCLE = "maintain"
"""Job under which the ledger remembers that a cycle began."""

_log = logging.getLogger(__name__)


class CycleTable(TypedDict):
    """One table of a run.

    Attributes:
        label: For people.
        target: The table.
        collect_garbage: Whether the last step deletes.
    """

    label: str
    target: Target
    collect_garbage: bool


class SparkArguments(TypedDict):
    """What the Spark job gets.

    Attributes:
        name: For people.
        application_args: Of ``jobs/merge.py``.
        storage_connection: Airflow connection with its storage options; empty = none.
    """

    name: str
    application_args: list[str]
    storage_connection: str


def choose_cycle_tables(names: Sequence[str], *, by_schedule: bool, clock: Clock | None = None) -> list[CycleTable]:
    """Return the registered tables whose cycle is to run.

    Args:
        names: Only these; empty = all that are not excluded.
        by_schedule: Leave out tables whose last cycle began less than ``every_minutes`` ago.
        clock: The system's if None.

    Raises:
        InvalidRequestError: No registry is configured, or a name is not registered.
        UnavailableError: Storage failed.
    """
    registry = load_registry()
    if registry is None:
        raise InvalidRequestError(
            "no tables are registered", remedy="name a registry with MAINTENANCE_TABLES; docs/operating.md shows one"
        )
    chosen = [registry.find(name) for name in names] if names else list(registry.maintained)
    now = (clock if clock is not None else SystemClock()).now()
    return [
        CycleTable(label=table.name, target=as_target(table), collect_garbage=table.collect_garbage)
        for table in chosen
        if not by_schedule or _is_due(table, now)
    ]


def begin_cycle(table: CycleTable, holder: str) -> SparkArguments | None:
    """Record that a table's cycle begins, and prepare its merge.

    Returns:
        What the Spark job gets; None if nothing can be merged.

    Raises:
        InvalidRequestError: The table cannot be merged into.
        UnavailableError: Storage failed. Try again.
    """
    target = table["target"]
    admin = open_target(target)
    with admin.insight.ledger.run(admin.insight.new_run(JobKey(CYCLE), holder)) as progress:
        work = admin.plan_merge(MergeRequest())
        progress.verdict = f"{len(work.batches)} merge jobs to begin with"
    for region in work.report.regions:
        _log.info("region %s: %s %s", region.region_id, region.verdict.value, region.evidence)
    if not work.batches:
        return None
    options = [part for pair in target["storage_options"].items() for part in ("--storage-option", "=".join(pair))]
    return SparkArguments(
        name=f"merge {target['name']}",
        application_args=["--uri", target["uri"], "--ok-when-nothing", "--holder", holder, *options],
        storage_connection=target["connection"],
    )


def cycle_step(job: str, table: CycleTable, holder: str) -> StepResult:
    """Run one step of a table's cycle under a lease of its own.

    Garbage is only planned, and nothing is deleted, unless the table's entry allows it.

    Raises:
        MemwalError: As ``run_step``.
    """
    target, params = table["target"], dict[str, object]()
    params["dry_run"] = job == "gc" and not table["collect_garbage"]
    return run_step(
        WorkItem(label=f"{target['name']}: {job}", job=job, index="", target=target, params=params, ticket=""), holder
    )


def _is_due(table: RegisteredTable, now: datetime) -> bool:
    runs = open_target(as_target(table)).insight.ledger.history(JobKey(CYCLE)).runs
    began = runs[-1].started if runs else None
    # A minute of a schedule never comes exactly on time.
    due = began is None or now - began >= timedelta(minutes=table.every_minutes) * 0.9
    _log.info("%s: %s [last_cycle=%s]", table.name, "due" if due else "not due yet", began)
    return due
