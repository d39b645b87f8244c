"""What one round over many tables did, table by table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words

_WORST_FIRST = (5, 8, 2, 1, 6, 4)
"""Exit codes, by how much they need a person."""


class RoundEnd(StrEnum):
    """What became of a table in one round."""

    MAINTAINED = "maintained"
    """Its cycle ran; the outcome says how."""
    NOT_DUE = "not_due"
    BUSY = "busy"
    """Another run maintains it."""
    STILL_RUNNING = "still_running"
    """An earlier cycle of this process was given up, and has not ended."""
    OVERDUE = "overdue"
    """It was given up."""
    FAILED = "failed"
    """It could not be opened, or its entry is not understood."""


_FINE = {RoundEnd.NOT_DUE, RoundEnd.BUSY}
_FINE_OUTCOMES = {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO, JobOutcome.PLANNED}


@dataclass(frozen=True, slots=True)
class TableRound:
    """One table in one round.

    Attributes:
        uri: Its address; empty if its entry is not understood.
        end: What became of it.
        outcome: Of its cycle; None if it did not run to its end.
        error: What kept it from its cycle: class, text, what to do next, facts.
        exit_code: As of a command that did the same for this table alone.
    """

    table: str
    uri: str
    end: RoundEnd
    why: str
    seconds: float = 0.0
    outcome: JobOutcome | None = None
    report: Mapping[str, object] | None = None
    error: Mapping[str, object] | None = None
    exit_code: int = 0

    @property
    def is_problem(self) -> bool:
        """Whether the table needs somebody, or another attempt."""
        if self.end is RoundEnd.MAINTAINED:
            return self.outcome not in _FINE_OUTCOMES
        return self.end not in _FINE

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "table": self.table,
            "uri": self.uri,
            "end": self.end.value,
            "outcome": None if self.outcome is None else self.outcome.value,
            "why": self.why,
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 6),
            "error": None if self.error is None else dict(self.error),
            "report": None if self.report is None else dict(self.report),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the round that ``to_dict`` described."""
        outcome = values["outcome"]
        known = {**values, "end": RoundEnd(values["end"]), "outcome": None if outcome is None else JobOutcome(outcome)}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class FleetReport:
    """One round.

    Attributes:
        tables: In the order of the registry.
        seconds: The whole round.
    """

    tables: tuple[TableRound, ...]
    seconds: float

    @property
    def problems(self) -> tuple[TableRound, ...]:
        """Tables that need somebody, or another attempt."""
        return tuple(table for table in self.tables if table.is_problem)

    @property
    def exit_code(self) -> int:
        """Return 0 if anything was done, 3 if there was nothing to do, 6 if some tables have problems.

        If all have, it is the code of the worst.
        """
        codes = {table.exit_code for table in self.problems}
        if not codes:
            worked = any(table.outcome in (JobOutcome.DONE, JobOutcome.PLANNED) for table in self.tables)
            return (JobOutcome.DONE if worked else JobOutcome.NOTHING_TO_DO).exit_code
        if len(self.problems) < len(self.tables):
            return JobOutcome.PARTIAL.exit_code
        return next((code for code in _WORST_FIRST if code in codes), 1)

    def why(self) -> str:
        """Say how many tables ended how."""
        ends = Counter(_shown(table) for table in self.tables)
        return ", ".join(f"{number} {end}" for end, number in ends.most_common()) or "no tables"

    def view(self) -> ReportView:
        """Return one line per table, those with problems first; idle ones are only counted."""
        shown = sorted(
            (each for each in self.tables if each.end is not RoundEnd.NOT_DUE), key=lambda each: not each.is_problem
        )
        rows = tuple((each.table, _shown(each), f"{each.seconds:.2f}", each.why) for each in shown)
        notes = tuple(
            f"{each.table} ({each.uri}): {each.error['what']}; next: {each.error['next']}"
            for each in shown
            if each.error
        )
        return ReportView(
            f"{self.why()}, {self.seconds:.2f} s", (Grid(("table", "outcome", "seconds", "why"), rows),), notes
        )

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "exit_code": self.exit_code,
            "seconds": round(self.seconds, 6),
            "tables": [table.to_dict() for table in self.tables],
        }


def _shown(table: TableRound) -> str:
    return show_words(table.outcome.value if table.outcome is not None else table.end.value)
