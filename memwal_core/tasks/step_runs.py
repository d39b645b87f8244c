"""Runs of catch-up, snapshot, compaction and garbage collection in the ledger, whoever starts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from memwal_core.admin import TableAdmin
from memwal_core.maintenance.catchup import CatchupReport
from memwal_core.maintenance.compact import CompactReport
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.snapshot import SnapshotReport
from memwal_core.tasks.recording import recorded

StepReport = CatchupReport | SnapshotReport | CompactReport | GcReport

Report = TypeVar("Report", CatchupReport, SnapshotReport, CompactReport, GcReport)


def recorded_step(admin: TableAdmin, key: JobKey, holder: str | None, work: Callable[[str], Report]) -> Report:
    """Run a job that takes its own lease, and record it.

    Args:
        admin: Its table.
        key: The job and what it works on.
        holder: Who runs it; made up if None.
        work: The job, given the holder.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    name = holder or admin.table.ids.commit_id().hex()
    return recorded(admin, key, name, lambda: work(name), facts=step_facts)


def step_facts(report: StepReport) -> dict[str, object]:
    """Return what the ledger and the asset event say about a run."""
    match report:
        case GcReport():
            done = {kind.value: tally.to_dict() for kind, tally in report.done.items()}
            return {"version": report.plan.version, "done": done, "failures": len(report.failures)}
        case CatchupReport():
            rows = sum(index.rows_indexed for index in report.indexes)
            return {"version": report.version_after, "rows": rows, "indexes": [index.name for index in report.indexes]}
        case CompactReport():
            fragments = {"fragments_before": report.fragments_before, "fragments_after": report.fragments_after}
            return {"version": report.version_after, **fragments}
        case SnapshotReport():
            return {"version": report.version_after, "regions": report.plan.regions}
