"""What a repair did, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.plan import RepairPlan, RepairStep
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.text import show_count

_NOTHING = "nothing that it mends is damaged; `memwal doctor` tells of the rest"


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was taken.

    Attributes:
        facts: The same for machines, JSON-able.
    """

    step: RepairStep
    result: str
    facts: Mapping[str, object]

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {**self.step.to_dict(), "result": self.result, "facts": dict(self.facts)}


@dataclass(frozen=True, slots=True)
class RepairReport:
    """One repair.

    Attributes:
        plan: Of a dry run, what a run would do; else what was left after the run.
        done: What was done, in order.
        unneeded: What was accepted to be lost and is not damaged: it is whole, merged, or was given up before.
        backup: Directory below the table with copies of what was touched; None if nothing was.
    """

    table_uri: str
    outcome: JobOutcome
    plan: RepairPlan
    done: tuple[DoneStep, ...]
    backup: str | None
    seconds: float
    unneeded: tuple[str, ...] = ()

    def why(self) -> str:
        """Say what was done and what is left."""
        if not self.done and not self.plan.steps and not self.plan.unresolved:
            return ". ".join([_NOTHING, *self._not_given_up()])
        verb = "due" if self.outcome is JobOutcome.PLANNED else "done"
        steps = self.plan.steps if self.outcome is JobOutcome.PLANNED else [each.step for each in self.done]
        named = "; ".join(f"{show_words(each.kind.value)} {each.subject}" for each in steps)
        left = "; ".join(f"{each.subject}: {each.remedy}" for each in self.plan.unresolved)
        parts = [f"{show_count(len(steps), 'step')} {verb}" + (f": {named}" if named else "")]
        return ". ".join([*parts, *([f"left to a person: {left}"] if left else []), *self._not_given_up()])

    def _not_given_up(self) -> list[str]:
        named = ", ".join(self.unneeded)
        return [f"not damaged, so that nothing of it is given up: {named}"] if named else []

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers: every step, what was given up with it, and where the copies are."""
        versions = [version for each in self.done if isinstance(version := each.facts.get("version"), int)]
        return {
            **({"version": max(versions)} if versions else {}),
            "steps": [each.to_dict() for each in self.done],
            "unresolved": [each.to_dict() for each in self.plan.unresolved],
            "backup": self.backup,
        }

    def view(self) -> ReportView:
        """Return the steps with their evidence, and what is left."""
        if self.outcome is JobOutcome.PLANNED:
            headline = f"would repair: {show_count(len(self.plan.steps), 'step')}"
            rows = [(show_words(each.kind.value), each.subject, each.evidence) for each in self.plan.steps]
        else:
            headline = f"{show_words(self.outcome.value)}: {show_count(len(self.done), 'step')}, {self.seconds:.2f} s"
            rows = [
                (show_words(each.step.kind.value), each.step.subject, f"{each.step.evidence}. Now: {each.result}")
                for each in self.done
            ]
        grids = (Grid(("step", "on", "evidence"), tuple(rows)),) if rows else ()
        notes = [f"left: {each.subject}: {each.problem}. Next: {each.remedy}" for each in self.plan.unresolved]
        if self.backup is not None:
            notes.append(f"copies of what was touched: {self.backup} below the table")
        nothing = [] if notes or rows else [_NOTHING]
        return ReportView(headline, grids, (*nothing, *notes, *self._not_given_up()))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "repair",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "why": self.why(),
            "planned": [each.to_dict() for each in self.plan.steps],
            "done": [each.to_dict() for each in self.done],
            "unresolved": [each.to_dict() for each in self.plan.unresolved],
            "unneeded_losses": list(self.unneeded),
            "backup": self.backup,
            "seconds": round(self.seconds, 6),
        }
