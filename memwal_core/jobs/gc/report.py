"""What a garbage collection did, for people and for machines: one JSON schema for every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memwal_core.jobs.gc.collecting.deleter import Failure
from memwal_core.jobs.gc.items import Kind, Tally
from memwal_core.jobs.gc.plan import GcPlan
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Workplace, place_facts, place_lines
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_bytes

_SHOWN = 20
"""Objects that people are shown by name."""


@dataclass(frozen=True, slots=True)
class GcReport:
    """The whole run.

    Attributes:
        outcome: How it ended. ``conflict`` means that something could not be collected and a later
            run will try again; ``blocked`` that something is frozen, whatever else was collected.
        failures: What could not be collected.
        plan: The last plan; of a dry run, the one that a run would begin with.
        due_at: When a run may delete all directories that are in their grace period now; None if none is.
        seconds: The whole run, waits included.
        place: Where regions were read and collected, and why there; None if nothing was to choose.
    """

    table_uri: str
    outcome: JobOutcome
    done: Mapping[Kind, Tally]
    failures: tuple[Failure, ...]
    plan: GcPlan
    notes: tuple[str, ...]
    due_at: datetime | None
    seconds: float
    place: Workplace | None = None

    def why(self) -> str:
        """Say what was collected or would be, or why nothing may be."""
        freezes = self.plan.freezes
        if freezes:
            return f"frozen: {freezes.table or next(iter(freezes.regions.values()))}"
        planned = self.outcome is JobOutcome.PLANNED
        tallies = self.plan.free_by_kind() if planned else self.done
        items = sum(tally.items for tally in tallies.values())
        if self.failures:
            return f"{items} items collected, {len(self.failures)} could not be: {self.failures[0].error}"
        size = show_bytes(sum(tally.size_bytes for tally in tallies.values()))
        return f"{items} items with {size} {'are free' if planned else 'collected'}"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        done = {kind.value: tally.to_dict() for kind, tally in self.done.items()}
        facts: dict[str, object] = {"version": self.plan.version, "done": done, "failures": len(self.failures)}
        if self.due_at is not None:
            facts["due_at"] = self.due_at.isoformat()
        return {**facts, **place_facts(self.place)}

    def view(self) -> ReportView:
        """Return tallies by kind, the first objects, and what stands in the way."""
        planned = self.outcome is JobOutcome.PLANNED
        tallies = self.plan.free_by_kind() if planned else self.done
        kept = self.plan.kept_by_gate()
        rows = []
        for kind in sorted({*tallies, *kept}):
            gates = ", ".join(f"{tally.items} {gate}" for gate, tally in kept.get(kind, {}).items())
            tally = tallies.get(kind)
            items, size = (str(tally.items), show_bytes(tally.size_bytes)) if tally is not None else ("0", "")
            rows.append((show_words(kind.value), items, size, gates))
        did = "would drain or delete" if planned else "drained or deleted"
        headline = f"{show_words(self.outcome.value)}: version {self.plan.version}"
        return ReportView(headline, (Grid(("kind", did, "bytes", "stays, and why"), tuple(rows)),), self._lines())

    def _lines(self) -> tuple[str, ...]:
        lines = []
        for item in self.plan.free[:_SHOWN]:
            evidence = f" ({item.evidence})" if item.evidence else ""
            lines.append(f"{item.action} {item.path}: {item.reason.value}{evidence}")
        if len(self.plan.free) > _SHOWN:
            lines.append(f"and {len(self.plan.free) - _SHOWN} more; --json lists every object")
        freezes = self.plan.freezes
        lines += [f"frozen table: {freezes.table}"] if freezes.table else []
        lines += [f"frozen region {region_id}: {reason}" for region_id, reason in freezes.regions.items()]
        lines += [f"failed {failure.path}: {failure.error}" for failure in self.failures]
        return (*lines, *self.notes, *place_lines(self.place))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "gc",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "notes": list(self.notes),
            "done": {kind.value: tally.to_dict() for kind, tally in self.done.items()},
            "failures": [{"path": each.path, "error": each.error} for each in self.failures],
            "plan": self.plan.to_dict(),
            "due_at": None if self.due_at is None else self.due_at.isoformat(),
            "seconds": round(self.seconds, 6),
            **place_facts(self.place),
        }
