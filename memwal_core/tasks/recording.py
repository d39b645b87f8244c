"""Every run of a job in the table's ledger, whoever started it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from memwal_core.admin import TableAdmin
from memwal_core.ingest import IngestReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseTicket
from memwal_core.maintenance.ledger import RunOutcome, progress_fact
from memwal_core.maintenance.merge import MergeReport
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.signals import MEMORY_LIMIT_FACT, MERGED_BYTES_FACT, PEAK_MEMORY_FACT
from memwal_core.tasks.memory import memory_limit_bytes, peak_memory_bytes


class JobReport(Protocol):
    """What all reports have.

    Attributes:
        outcome: How the job ended; its value is one of ``RunOutcome``.
    """

    @property
    def outcome(self) -> _Named:
        """How the job ended."""
        ...


class _Named(Protocol):
    @property
    def value(self) -> str:
        """Return the word."""
        ...


Report = TypeVar("Report", bound=JobReport)


def recorded(
    admin: TableAdmin,
    key: JobKey,
    holder: str,
    work: Callable[[], Report],
    *,
    ticket: LeaseTicket | None = None,
    facts: Callable[[Report], Mapping[str, object]] | None = None,
) -> Report:
    """Run a job and record it.

    Args:
        admin: Its table.
        key: The job and what it works on.
        holder: Who runs it.
        work: The job.
        ticket: The lease that it works under.
        facts: What to remember of its report.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    token = ticket.fencing_token if ticket is not None else 0
    with admin.insight.ledger.run(admin.insight.new_run(key, holder, token)) as progress:
        try:
            report = work()
        finally:
            progress.facts.update({PEAK_MEMORY_FACT: peak_memory_bytes(), MEMORY_LIMIT_FACT: memory_limit_bytes()})
        only_planned = report.outcome.value == JobOutcome.PLANNED.value
        progress.outcome = RunOutcome.NOTHING_TO_DO if only_planned else RunOutcome(report.outcome.value)
        progress.verdict = "only planned" if only_planned else str(getattr(report, "reason", "") or "")
        progress.facts.update(facts(report) if facts is not None else {})
    return report


def merge_facts(report: MergeReport) -> dict[str, object]:
    """Return what the ledger remembers of a merge; the doctor compares its progress with the table's."""
    return {
        "version": report.version_after,
        "generations": report.generations,
        MERGED_BYTES_FACT: report.bytes_planned,
        "rows": sum(commit.upserts for commit in report.commits),
        **progress_fact({region.region_id: region.merged_after for region in report.regions}),
    }


def ingest_facts(report: IngestReport) -> dict[str, object]:
    """Return what the ledger remembers of an ingestion."""
    return {
        "stream": report.batch.stream,
        "batch": report.batch.batch,
        "rows_read": report.rows_read,
        "rows_written": report.rows_written,
        "regions": len(report.regions),
    }
