"""What a relocation did, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.relocate.plan import RelocationPlan
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class RelocateReport:
    """One relocation.

    Attributes:
        plan: What was found and, unless the outcome says otherwise, done.
    """

    table_uri: str
    outcome: JobOutcome
    plan: RelocationPlan
    seconds: float

    def why(self) -> str:
        """Say what was done, or why nothing was."""
        if self.plan.obstacles:
            return "; ".join(self.plan.obstacles)
        if not self.plan.is_due:
            return f"the table is at home at {self.plan.address}"
        would = "would be " if self.outcome is JobOutcome.PLANNED else ""
        parts = [f"{show_count(len(self.plan.rebases), 'flushed MemTable')} {would}given the present address"]
        if self.plan.records_address or self.plan.ends:
            parts.append(f"{self.plan.address} {would}made the only address of the table")
        if self.plan.ends:
            parts.append(f"the freeze address-changed {would}ended")
        return ", ".join(parts)

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "address": self.plan.address,
            "known_addresses": list(self.plan.known),
            "rebased": [each.subject for each in self.plan.rebases],
            "examined": len(self.plan.examined),
            "entries_read": sum(each.entries for each in self.plan.examined),
            "ended": [each.to_dict() for each in self.plan.ends],
        }

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "relocate",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "why": self.why(),
            "obstacles": list(self.plan.obstacles),
            "seconds": round(self.seconds, 6),
            **self.facts(),
        }

    def view(self) -> ReportView:
        """Return what was found of each flushed MemTable, and what stands in the way."""
        rows = tuple((each.subject, each.problem or each.evidence) for each in self.plan.examined)
        grids = (Grid(("flushed MemTable", "found"), rows),) if rows else ()
        headline = f"{show_words(self.outcome.value)}: {self.why() if not self.plan.obstacles else 'nothing changed'}"
        return ReportView(headline, grids, (*(f"in the way: {each}" for each in self.plan.obstacles), *self._advice()))

    def _advice(self) -> Iterator[str]:
        if self.plan.damage or self.plan.is_mixed:
            yield (
                "a copy that was made while writers or jobs worked may lack files, or have files of several moments: "
                "if the original is still there, copy it again, with `memwal backup` or after both were stopped; "
                "`memwal repair` and `memwal thaw` may give up rows"
            )
