"""Every run of a job in the table's ledger, whoever started it: a command, a Spark application or a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from memwal_core.maintenance.catchup import CatchupReport
from memwal_core.maintenance.compact import CompactReport
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.insight import TableInsight
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseTicket
from memwal_core.maintenance.ledger import RunOutcome, progress_fact
from memwal_core.maintenance.memory import memory_limit_bytes, peak_memory_bytes
from memwal_core.maintenance.merge import MergeReport
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.signals import MEMORY_LIMIT_FACT, MERGED_BYTES_FACT, PEAK_MEMORY_FACT
from memwal_core.maintenance.snapshot import SnapshotReport


class JobReport(Protocol):
    """What all reports have."""

    @property
    def outcome(self) -> JobOutcome:
        """How the job ended; its value is one of ``RunOutcome``."""
        ...


StepReport = CatchupReport | SnapshotReport | CompactReport | GcReport

Report = TypeVar("Report", bound=JobReport)
Stepped = TypeVar("Stepped", MergeReport, CatchupReport, SnapshotReport, CompactReport, GcReport)


def recorded(
    insight: TableInsight,
    key: JobKey,
    holder: str,
    work: Callable[[], Report],
    *,
    ticket: LeaseTicket | None = None,
    facts: Callable[[Report], Mapping[str, object]] | None = None,
) -> Report:
    """Run a job and record it. A ledger that cannot be written is logged and keeps no job from working.

    Args:
        insight: Of its table.
        key: The job and what it works on.
        holder: Who runs it.
        work: The job.
        ticket: The lease that it works under.
        facts: What to remember of its report.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    token = ticket.fencing_token if ticket is not None else 0
    with insight.ledger.run(insight.new_run(key, holder, token)) as progress:
        try:
            report = work()
        finally:
            progress.facts.update({PEAK_MEMORY_FACT: peak_memory_bytes(), MEMORY_LIMIT_FACT: memory_limit_bytes()})
        only_planned = report.outcome is JobOutcome.PLANNED
        progress.outcome = RunOutcome.NOTHING_TO_DO if only_planned else RunOutcome(report.outcome.value)
        progress.verdict = "only planned" if only_planned else str(getattr(report, "reason", "") or "")
        progress.facts.update(facts(report) if facts is not None else {})
    return report


def recorded_step(
    insight: TableInsight, key: JobKey, holder: str | None, work: Callable[[str], Stepped], *, dry_run: bool = False
) -> Stepped:
    """Run a job that takes its own lease, and record it.

    Args:
        insight: Of its table.
        key: The job and what it works on.
        holder: Who runs it; made up if None.
        work: The job, given the holder.
        dry_run: The job only plans, which is no run and not recorded.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    name = holder or insight.new_holder()
    return work(name) if dry_run else recorded(insight, key, name, lambda: work(name), facts=step_facts)


def step_facts(report: StepReport | MergeReport) -> dict[str, object]:
    """Return what the ledger and the asset event say about a run."""
    match report:
        case MergeReport():
            return merge_facts(report)
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


def merge_facts(report: MergeReport) -> dict[str, object]:
    """Return what the ledger remembers of a merge; the doctor compares its progress with the table's."""
    return {
        "version": report.version_after,
        "generations": report.generations,
        MERGED_BYTES_FACT: report.bytes_planned,
        "rows": sum(commit.upserts for commit in report.commits),
        "strategy": report.strategy,
        "strategy_reason": report.strategy_reason,
        **progress_fact({region.region_id: region.merged_after for region in report.regions}),
    }
