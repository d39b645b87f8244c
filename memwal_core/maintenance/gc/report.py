"""What a garbage collection did, for people and for machines: one JSON schema for every way to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memwal_core.maintenance.gc.deleter import Failure
from memwal_core.maintenance.gc.items import Kind, Tally
from memwal_core.maintenance.gc.plan import GcPlan
from memwal_core.maintenance.outcome import JobOutcome


@dataclass(frozen=True, slots=True)
class GcReport:
    """The whole run.

    Attributes:
        table_uri: The base table.
        outcome: How it ended. ``conflict`` means that something could not be collected and a later
            run will try again; ``blocked`` that something is frozen, whatever else was collected.
        done: What was drained or deleted, by kind.
        failures: What could not be collected.
        plan: The last plan; of a dry run, the one that a run would begin with.
        notes: What a reader should know about the run.
        due_at: When a run may delete all directories that are in their grace period now; None if none is.
        seconds: The whole run, waits included.
    """

    table_uri: str
    outcome: JobOutcome
    done: Mapping[Kind, Tally]
    failures: tuple[Failure, ...]
    plan: GcPlan
    notes: tuple[str, ...]
    due_at: datetime | None
    seconds: float

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
        }
