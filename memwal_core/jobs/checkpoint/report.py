"""What a checkpoint did, and what still waits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memwal_core.ids import RegionId
from memwal_core.jobs.flush_idle.plan import IdleReason
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.merge.report import MergeReport
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count

_WORST_FIRST = (JobOutcome.BLOCKED, JobOutcome.CONFLICT, JobOutcome.PARTIAL)


@dataclass(frozen=True, slots=True)
class CheckpointRound:
    """One flush, and the merge after it."""

    flush: FlushReport
    merge: MergeReport

    @property
    def unflushed(self) -> tuple[RegionId, ...]:
        """Regions with rows in the WAL that this round did not flush."""
        flushed = {each.region_id for each in self.flush.flushed}
        waiting = (each for each in self.flush.plan.regions if each.reason is not IdleReason.FLUSHED)
        return tuple(each.region_id for each in waiting if each.region_id not in flushed)

    @property
    def unmerged(self) -> int:
        """Flushed MemTables that this round left unmerged, whatever kept them."""
        return sum(region.waiting for region in self.merge.regions)

    @property
    def is_complete(self) -> bool:
        """Whether what waited when it began is in the base table."""
        fine = not any(each.outcome in _WORST_FIRST for each in (self.flush, self.merge))
        return fine and not self.unflushed and not self.unmerged

    @property
    def has_acted(self) -> bool:
        """Whether it changed anything."""
        return bool(self.flush.flushed or self.merge.generations)


@dataclass(frozen=True, slots=True)
class CheckpointReport:
    """All rounds.

    Attributes:
        rounds: In order; at least one.
        dry_run: Whether the only round was planned.
    """

    table_uri: str
    rounds: tuple[CheckpointRound, ...]
    dry_run: bool
    seconds: float

    @property
    def outcome(self) -> JobOutcome:
        """``DONE`` and ``NOTHING_TO_DO``: nothing that was written before the call waits any more.

        ``CONFLICT``: rows wait with a writer that may be alive, or somebody else was faster; try again. Otherwise the
        worst that one of the jobs met.
        """
        last = self.rounds[-1]
        met = {last.flush.outcome, last.merge.outcome}
        worst = next((each for each in _WORST_FIRST if each in met), None)
        if worst is not None:
            return worst
        if self.dry_run and JobOutcome.PLANNED in met:
            return JobOutcome.PLANNED
        if not last.is_complete:
            return JobOutcome.CONFLICT
        return JobOutcome.DONE if any(each.has_acted for each in self.rounds) else JobOutcome.NOTHING_TO_DO

    @property
    def rows_flushed(self) -> int:
        """Rows that the flushes of all rounds brought from WALs."""
        return sum(each.flush.rows for each in self.rounds)

    @property
    def generations(self) -> int:
        """Flushed MemTables that were merged."""
        return sum(each.merge.generations for each in self.rounds)

    def why(self) -> str:
        """Say what keeps rows waiting, or that none wait."""
        last = self.rounds[-1]
        if self.outcome in (JobOutcome.DONE, JobOutcome.NOTHING_TO_DO):
            return "nothing waits"
        if last.is_complete or self.outcome is JobOutcome.PLANNED:
            return f"{last.flush.why()}; {last.merge.why()}"
        waits = [f"rows wait in the WAL of {show_count(len(last.unflushed), 'region')}"] if last.unflushed else []
        waits += [f"{show_count(last.unmerged, 'flushed MemTable')} not merged"] if last.unmerged else []
        return "; ".join([*waits, last.merge.why() if last.merge.outcome in _WORST_FIRST else last.flush.why()])

    def view(self) -> ReportView:
        """Return one line about the whole, and the reports of the last round's jobs."""
        last = self.rounds[-1]
        parts = last.flush.view(), last.merge.view()
        grids: Iterable[Grid] = (grid for part in parts for grid in part.grids)
        notes = (note for part in parts for note in (part.headline, *part.notes))
        if self.dry_run:
            headline = (
                f"would flush {show_count(len(last.flush.plan.due), 'region')}, then merge what waits; {self.why()}"
            )
        else:
            headline = (
                f"{show_words(self.outcome.value)}: {show_count(self.rows_flushed, 'row')} flushed, "
                f"{show_count(self.generations, 'generation')} merged, {self.seconds:.2f} s; {self.why()}"
            )
        return ReportView(headline, tuple(grids), tuple(notes))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        last = self.rounds[-1]
        return {
            "job": "checkpoint",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "dry_run": self.dry_run,
            "why": self.why(),
            "rows_flushed": self.rows_flushed,
            "generations": self.generations,
            "unflushed_regions": [str(region_id) for region_id in last.unflushed],
            "unmerged_generations": last.unmerged,
            "rounds": [{"flush": each.flush.to_dict(), "merge": each.merge.to_dict()} for each in self.rounds],
            "seconds": round(self.seconds, 6),
        }
