"""What a maintenance cycle did: the reports of its jobs, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.jobs.cycle.plan import StepEnd, StepName
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step.

    Attributes:
        end: Whether it ran.
        outcome: How the job ended; ``nothing_to_do`` if it was skipped or not reached, ``conflict``
            if it pauses or another run holds its lease.
        report: The job's own report; None if there is none.
        error: What ended the job early: class, text and facts; None if nothing did.
        unaware_of: Of a dry run: steps before it that would change the table, of which its plan knows nothing.
        is_held: Whether another run holds the lease of the job, perhaps one that died.
    """

    step: StepName
    job: str
    end: StepEnd
    outcome: JobOutcome
    why: str
    report: Mapping[str, object] | None = None
    error: Mapping[str, object] | None = None
    seconds: float = 0.0
    unaware_of: tuple[str, ...] = ()
    is_held: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "step": self.step.value,
            "job": self.job,
            "end": self.end.value,
            "outcome": self.outcome.value,
            "why": self.why,
            "error": None if self.error is None else dict(self.error),
            "report": None if self.report is None else dict(self.report),
            "unaware_of": list(self.unaware_of),
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """The whole cycle.

    Attributes:
        outcome: The worst of the steps: ``frozen``, ``blocked``, then ``conflict``, then ``done``, ``planned``
            and ``nothing_to_do``.
        dry_run: Whether nothing was changed. Each plan is then made on the present state, not on
            the state that the steps before it would leave.
        steps: In their order; the cycle ends at the first one that needs a human.
    """

    table_uri: str
    outcome: JobOutcome
    dry_run: bool
    steps: tuple[StepReport, ...]
    seconds: float

    @property
    def is_busy(self) -> bool:
        """Whether it ended with a conflict because of nothing but leases that other runs hold."""
        conflicts = [step.is_held for step in self.steps if step.outcome is JobOutcome.CONFLICT]
        return self.outcome is JobOutcome.CONFLICT and all(conflicts)

    @property
    def _shared_why(self) -> str:
        """Why all steps ended as they did, as in a cycle that found nothing changed; empty if they differ."""
        ends = {(step.end, step.outcome, step.is_held, step.why) for step in self.steps}
        return self.steps[0].why if len(self.steps) > 1 and len(ends) == 1 else ""

    def why(self) -> str:
        """Say what the steps said that decided how it ended, and which had to leave their work to another run."""
        said: dict[str, list[str]] = {}
        for step in self.steps:
            if step.outcome is self.outcome or step.is_held:
                said.setdefault(step.why, []).append(show_words(step.step.value))
        if self._shared_why:
            return self._shared_why
        return "; ".join(f"{', '.join(names)}: {why}" for why, names in said.items())

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {"steps": {step.step.value: step.outcome.value for step in self.steps}}

    def view(self) -> ReportView:
        """Return one line per step, or one for all of them if they have one reason."""
        plan = "plan of " if self.dry_run else ""
        headline = f"{plan}{self.table_uri}: {show_words(self.outcome.value)}, {self.seconds:.2f} s"
        failed = [step for step in self.steps if step.error is not None]
        if self._shared_why and not failed:
            return ReportView(headline, notes=(self._shared_why,))
        rows = tuple((step.job, _end(step), f"{step.seconds:.2f}", step.why) for step in self.steps)
        notes = [f"{step.job}: {step.error['what']}; next: {step.error['next']}" for step in failed if step.error]
        changing = self.steps[-1].unaware_of
        if changing:
            names = ", ".join(map(show_words, changing))
            notes.append(
                f"steps are planned on the table as it is now; what {names} would change gives later ones more"
            )
        collected = self.steps[-1]
        if collected.outcome is JobOutcome.PLANNED and not self.dry_run:
            notes.append("nothing was deleted; --delete lets garbage collection act")
        return ReportView(headline, (Grid(("job", "outcome", "seconds", "why"), rows),), tuple(notes))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "maintain",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "dry_run": self.dry_run,
            "steps": [step.to_dict() for step in self.steps],
            "seconds": round(self.seconds, 6),
        }


def _end(step: StepReport) -> str:
    return show_words(step.outcome.value if step.end is StepEnd.RAN or step.is_held else step.end.value)


def worst_outcome(steps: tuple[StepReport, ...], *, dry_run: bool) -> JobOutcome:
    """Return what the caller of a whole cycle must know.

    Args:
        steps: All of them.
        dry_run: A plan is what was asked for; otherwise a step that only planned did nothing.
    """
    outcomes = {step.outcome for step in steps}
    worst_first = (
        JobOutcome.FROZEN,
        JobOutcome.BLOCKED,
        JobOutcome.FAILED,
        JobOutcome.CONFLICT,
        JobOutcome.PARTIAL,
        JobOutcome.DONE,
    )
    for outcome in worst_first:
        if outcome in outcomes:
            return outcome
    return JobOutcome.PLANNED if dry_run and JobOutcome.PLANNED in outcomes else JobOutcome.NOTHING_TO_DO
