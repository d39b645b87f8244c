"""What a snapshot build did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.ids import RegionId
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.snapshot.plan import SnapshotPlan
from memwal_core.jobs.view import ReportView, show_words
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """One build.

    Attributes:
        version_before: Table version of the first plan.
        version_after: Version that has the snapshot, or the newest one seen.
        hints_raised: Region -> WAL entry that its manifest now names.
        hints_failed: Regions whose hint could not be raised, which does no harm.
        overtaken: Times another builder published first.
        plan: The last plan; of a dry run, the one that a run would execute.
        reason: Why a conflict ended it; empty otherwise.
        place: Where regions were surveyed, and why there; None if nothing was to choose.
    """

    table_uri: str
    outcome: JobOutcome
    version_before: int
    version_after: int
    hints_raised: dict[RegionId, int]
    hints_failed: tuple[RegionId, ...]
    overtaken: int
    plan: SnapshotPlan
    seconds: float
    reason: str = ""
    place: Workplace | None = None

    def why(self) -> str:
        """Say whether there was anything new to publish."""
        parked = f"; {len(self.plan.parked)} damaged regions keep their rows" if self.plan.parked else ""
        return self.reason or f"{show_count(self.plan.regions, 'region')}: {self.plan.reason.value}{parked}"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {"version": self.version_after, "regions": self.plan.regions, **place_facts(self.place)}

    def view(self) -> ReportView:
        """Return a line about the build, and why it was due or not."""
        plan = self.plan
        form = "inside the table manifest" if plan.is_inline else "in a file of its own"
        if self.outcome is JobOutcome.PLANNED:
            headline = (
                f"would publish {show_count(plan.regions, 'region')} {form}, {len(plan.changed)} of them changed, "
                f"and raise {show_count(len(plan.hints), 'WAL hint')}, on version {plan.version}"
            )
        else:
            headline = (
                f"{show_words(self.outcome.value)}: {show_count(plan.regions, 'region')} {form}, "
                f"{len(plan.changed)} changed, "
                f"{show_count(len(self.hints_raised), 'WAL hint')} raised, version {self.version_before} -> "
                f"{self.version_after}, {self.seconds:.2f} s"
            )
        notes = [f"why: {self.reason or plan.reason.value}"]
        if self.hints_failed:
            notes.append(f"{show_count(len(self.hints_failed), 'WAL hint')} could not be raised, which does no harm")
        return ReportView(headline, notes=(*notes, *place_lines(self.place)))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "snapshot",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "regions": self.plan.regions,
            "hints_raised": {str(region_id): wal_id for region_id, wal_id in self.hints_raised.items()},
            "hints_failed": [str(region_id) for region_id in self.hints_failed],
            "overtaken": self.overtaken,
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
            **place_facts(self.place),
        }
