"""What became of a freeze or a thaw, for people and for machines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from memwal_core.coordination.freeze import Choice, Contradiction, Freeze, FreezeCause, FreezeScope
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.plan import RegionThaw
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count


@dataclass(frozen=True, slots=True)
class ThawReport:
    """What a thaw did, would do, or asks a person to decide.

    Attributes:
        outcome: ``done``, ``planned``, ``nothing_to_do`` if it is not frozen, ``blocked`` if the choice cannot be
            carried out, ``frozen`` if none was made.
        choice: What was chosen; None if nothing was.
        version: The version that records the new progress; 0 if none was needed.
    """

    table_uri: str
    outcome: JobOutcome
    active: tuple[Freeze, ...]
    ended: tuple[Freeze, ...] = ()
    choice: Choice | None = None
    regions: tuple[RegionThaw, ...] = field(default=())
    obstacles: tuple[str, ...] = ()
    version: int = 0
    seconds: float = 0.0

    def why(self) -> str:
        """Say what happened, one sentence."""
        if self.obstacles:
            return "; ".join(self.obstacles)
        if self.outcome is JobOutcome.NOTHING_TO_DO:
            return "the table is not frozen"
        if self.choice is None:
            return f"waits for a choice: {', '.join(dict.fromkeys(each.cause.value for each in self.active))}"
        causes = ", ".join(dict.fromkeys(each.cause.value for each in self.ended))
        lost = sum(len(each.skips) for each in self.regions)
        given_up = f"; not merged: {show_count(lost, 'generation')}" if lost else ""
        would = "would end " if self.outcome is JobOutcome.PLANNED else "ended "
        return f"{would}{causes} with {self.choice.value}{given_up}"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "choice": self.choice.value if self.choice is not None else "",
            "ended": [each.to_dict() for each in self.ended],
            "regions": [each.to_dict() for each in self.regions],
            "version": self.version,
        }

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "thaw",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "why": self.why(),
            "active": [explained(each) for each in self.active],
            "obstacles": list(self.obstacles),
            "seconds": round(self.seconds, 6),
            **self.facts(),
        }

    def view(self) -> ReportView:
        """Return the outcome, what happens to regions, and every freeze that remains with its choices."""
        columns = ("region", "merged", "from now on", "merges", "skips")
        rows = tuple(_row(each) for each in self.regions)
        grids = (Grid(columns, rows),) if rows else ()
        notes = tuple(line for each in self.active for line in explain(each))
        return ReportView(f"{show_words(self.outcome.value)}: {self.why()}", grids, notes)


def explain(freeze: Freeze) -> Iterator[str]:
    """Return what people need to decide about an active freeze, as lines."""
    facts = freeze.cause.facts
    yield f"{_subject(freeze)}: {facts.summary}, found by {freeze.by} on {freeze.at:%Y-%m-%d %H:%M:%S} UTC"
    yield from _evidence(freeze)
    for choice, meaning in facts.choices.items():
        yield f"  --choice {choice.value}: {meaning}"
    yield f"  see: {facts.runbook}"


def told(uri: str, active: Iterable[Freeze]) -> Iterator[str]:
    """Return what a dry run says of active freezes, as lines: what is frozen, why, and what ends it."""
    for each in active:
        what = "the table" if each.stops_table else "a region"
        yield f"frozen: jobs leave {what} alone until a person decides; next: {_command(uri, each)}"
        yield from (f"  {line}" for line in explain(each))


def foretold(found: Iterable[Contradiction]) -> Iterator[str]:
    """Return what a dry run says of what a run would freeze the table or regions for, as lines."""
    for each in found:
        facts = each.cause.facts
        what = "the table" if facts.scope is FreezeScope.TABLE else "a region"
        yield f"would be frozen: a run would leave {what} alone until a person decides; next: read {facts.runbook}"
        yield f"  {_subject(each)}: {facts.summary}"
        yield from (f"  {line}" for line in _evidence(each))


def foretold_to_machines(found: Iterable[Contradiction]) -> list[dict[str, object]]:
    """Return the same, JSON-able."""
    return [
        {
            "cause": each.cause.value,
            "region_id": str(each.region_id) if each.region_id is not None else None,
            "scope": each.cause.facts.scope.value,
            "evidence": dict(each.evidence),
            **_facts(each.cause),
        }
        for each in found
    ]


def told_to_machines(uri: str, active: Iterable[Freeze]) -> list[dict[str, object]]:
    """Return the same, JSON-able."""
    return [{**explained(each), "command": _command(uri, each)} for each in active]


def _command(uri: str, freeze: Freeze) -> str:
    choices = "|".join(each.value for each in freeze.cause.facts.choices)
    return f"memwal thaw {shlex.quote(uri)} --cause {freeze.cause.value} --choice {choices}"


def explained(freeze: Freeze) -> dict[str, object]:
    """Return an active freeze with what can be chosen, JSON-able."""
    return {**freeze.to_dict(), **_facts(freeze.cause)}


def _facts(cause: FreezeCause) -> dict[str, object]:
    facts = cause.facts
    return {
        "summary": facts.summary,
        "risk": facts.risk,
        "choices": {choice.value: meaning for choice, meaning in facts.choices.items()},
        "runbook": facts.runbook,
    }


def _subject(found: Freeze | Contradiction) -> str:
    return found.cause.value + (f" (region {found.region_id})" if found.region_id is not None else "")


def _evidence(found: Freeze | Contradiction) -> Iterator[str]:
    for name, value in found.evidence.items():
        yield f"  {name}: {value}"
    yield f"  risk: {found.cause.facts.risk}"


def _row(region: RegionThaw) -> tuple[str, ...]:
    lost = [
        f"{number} ({show_count(rows, 'row') if rows is not None else '? rows'})"
        for number, rows in region.skips.items()
    ]
    return (
        str(region.region_id),
        str(region.merged),
        str(region.target),
        ", ".join(map(str, region.merges)) or "-",
        ", ".join(lost) or "-",
    )
