"""The report of an ingestion."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Self

from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.records import BatchDone
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class ShareReport:
    """What happened to the rows of one region.

    Attributes:
        region_id: The region; empty in a dry run if it does not exist yet.
        rows: Rows of the batch for this region, deletes included.
        attempt: The attempt that wrote them; empty in a dry run.
    """

    region_id: str
    value: str
    rows: int
    deletes: int = 0
    written_before: bool = False
    attempt: str = ""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The outcome of one ingestion.

    Attributes:
        outcome: DONE, NOTHING_TO_DO if the batch was written before, or PLANNED.
        rows_read: Rows of the batch; 0 if the batch was written before and nothing was read.
        place: Where the rows were read and written; None if they were not.
    """

    table_uri: str
    batch: BatchId
    outcome: JobOutcome
    reason: str
    source: str
    rows_read: int
    regions: tuple[ShareReport, ...]
    seconds: float
    place: Workplace | None = None

    @classmethod
    def of_done(cls, table_uri: str, done: BatchDone, seconds: float = 0.0) -> Self:
        """Return the report on a batch that was written before."""
        if done.rows is None:
            reason = "the batch was written before; its record is no longer kept"
        else:
            counts = f"{show_count(done.rows, 'row')} in {show_count(done.regions, 'region')}"
            reason = f"the batch was written before: {counts} at {done.finished_at}"
        return cls(table_uri, done.batch, JobOutcome.NOTHING_TO_DO, reason, done.source, 0, (), seconds)

    @property
    def rows_written(self) -> int:
        """Rows that this run made durable."""
        if self.outcome is not JobOutcome.DONE:
            return 0
        return sum(region.rows for region in self.regions if not region.written_before)

    def why(self) -> str:
        """Say how many rows were written, or why none were."""
        return (
            self.reason
            or f"{show_count(self.rows_written, 'row')} written into {show_count(len(self.regions), 'region')}"
        )

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "stream": self.batch.stream,
            "batch": self.batch.batch,
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "regions": len(self.regions),
            **place_facts(self.place),
        }

    def view(self) -> ReportView:
        """Return a line about the batch, and one per region."""
        headline = f"{show_words(self.outcome.value)}: batch {self.batch}, {show_count(self.rows_read, 'row')} read"
        if self.outcome is JobOutcome.DONE:
            headline += (
                f", {self.rows_written:,} written into {show_count(len(self.regions), 'region')}, {self.seconds:.1f} s"
            )
        rows = tuple(
            (
                each.region_id or "new",
                each.value,
                f"{each.rows:,}",
                f"{each.deletes:,}",
                "yes" if each.written_before else "",
            )
            for each in self.regions
        )
        grid = Grid(("region", "value", "rows", "deletes", "written before"), rows)
        return ReportView(headline, (grid,), (*((self.reason,) if self.reason else ()), *place_lines(self.place)))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values. One bad row refuses the whole batch, so no report has rejected rows."""
        return {
            "job": "ingest",
            "table_uri": self.table_uri,
            "stream": self.batch.stream,
            "batch": self.batch.batch,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "source": self.source,
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "rows_rejected": 0,
            "regions": [asdict(region) for region in self.regions],
            "seconds": round(self.seconds, 3),
            **place_facts(self.place),
        }
