"""What a flush of idle regions did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass, field

from memwal_core.ids import RegionId
from memwal_core.jobs.flush_idle.plan import IdlePlan, IdleReason
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count
from memwal_core.writer.flush_region import RegionFlush

_CALM = {IdleReason.FLUSHED}


@dataclass(frozen=True, slots=True)
class FlushReport:
    """One run.

    Attributes:
        left: Region -> why it was left after all: its writer came back, or another process was first.
        failures: Region -> the error that kept it from being flushed; its rows are still in the WAL.
        unflushable: Region -> why a person is needed: its manifest or its WAL is damaged, or no version of the table
            has the columns of its rows.
    """

    table_uri: str
    outcome: JobOutcome
    plan: IdlePlan
    seconds: float
    flushed: tuple[RegionFlush, ...] = ()
    left: dict[RegionId, str] = field(default_factory=dict)
    failures: dict[RegionId, str] = field(default_factory=dict)
    unflushable: dict[RegionId, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows flushed, as ``RegionFlush.rows`` counts them."""
        return sum(each.rows for each in self.flushed)

    def why(self) -> str:
        """Say how many regions there are of each verdict, and what the first of those met that were not flushed."""
        counts = ", ".join(f"{count} {reason.value}" for reason, count in self.plan.counts().items())
        met = {**self.unflushable, **self.failures, **self.left}
        failed = f"; {len(met)} not flushed: {next(iter(met.values()))}" if met else ""
        return f"regions: {counts}{failed}" if counts else "there is no region"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "regions": [str(each.region_id) for each in self.flushed],
            "rows": self.rows,
            "verdicts": {reason.value: count for reason, count in self.plan.counts().items()},
        }

    def view(self) -> ReportView:
        """Return one line per region in which rows wait, or that was flushed."""
        if self.outcome is JobOutcome.PLANNED:
            headline = f"would flush {len(self.plan.due)} of {len(self.plan.regions)} regions"
        else:
            headline = (
                f"{show_words(self.outcome.value)}: {len(self.flushed)} of {len(self.plan.regions)} regions flushed, "
                f"{show_count(self.rows, 'row')}, {self.seconds:.2f} s"
            )
        cells = tuple(
            (str(each.region_id), self._became(each.region_id), each.reason.value, each.evidence)
            for each in self.plan.regions
            if each.reason not in _CALM
        )
        grids = (Grid(("region", "became", "why", "evidence"), cells),) if cells else ()
        return ReportView(headline, grids, tuple(self._notes()))

    def _became(self, region_id: RegionId) -> str:
        done = next((each for each in self.flushed if each.region_id == region_id), None)
        if done is not None:
            return f"flushed, {show_count(done.rows, 'row')}"
        return "failed" if region_id in {**self.failures, **self.unflushable} else "left alone"

    def _notes(self) -> list[str]:
        notes = [
            f"region {region}: {why}" for region, why in {**self.left, **self.failures, **self.unflushable}.items()
        ]
        alive = len(self.plan.having(IdleReason.ALIVE))
        if alive:
            notes.append(
                f"not touched: {show_count(alive, 'region')}, because their writer may be alive; --fence "
                "flushes them, and their writers must be opened again"
            )
        return notes

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "flush",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "rows": self.rows,
            "flushed": [
                {
                    "region_id": str(each.region_id),
                    "writer_epoch": each.epoch,
                    "replayed_entries": each.replayed_entries,
                    "generations": [flushed.generation for flushed in each.generations],
                    "rows": each.rows,
                }
                for each in self.flushed
            ],
            "left": {str(region): why for region, why in self.left.items()},
            "failures": {str(region): why for region, why in self.failures.items()},
            "unflushable": {str(region): why for region, why in self.unflushable.items()},
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
        }
