"""What a maintenance cycle did: the reports of its jobs, one after another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.maintenance.cycle.plan import JobName, StepEnd, StepName
from memwal_core.maintenance.outcome import JobOutcome


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step.

    Attributes:
        step: Which.
        job: What it runs.
        end: Whether it ran.
        outcome: How the job ended; ``nothing_to_do`` if it was skipped or not reached, ``conflict``
            if it pauses.
        why: One sentence.
        report: The job's own report; None if there is none.
        error: What ended the job early: class, text and facts; None if nothing did.
        seconds: The step.
    """

    step: StepName
    job: JobName
    end: StepEnd
    outcome: JobOutcome
    why: str
    report: Mapping[str, object] | None = None
    error: Mapping[str, object] | None = None
    seconds: float = 0.0

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "step": self.step.value,
            "job": self.job.value,
            "end": self.end.value,
            "outcome": self.outcome.value,
            "why": self.why,
            "error": None if self.error is None else dict(self.error),
            "report": None if self.report is None else dict(self.report),
            "seconds": round(self.seconds, 6),
        }


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """The whole cycle.

    Attributes:
        table_uri: The base table.
        outcome: The worst of the steps: ``blocked``, then ``conflict``, then ``done``, ``planned``
            and ``nothing_to_do``.
        dry_run: Whether nothing was changed. Each plan is then made on the present state, not on
            the state that the steps before it would leave.
        steps: In their order; the cycle ends at the first one that needs a human.
        seconds: The whole cycle.
    """

    table_uri: str
    outcome: JobOutcome
    dry_run: bool
    steps: tuple[StepReport, ...]
    seconds: float

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


def worst_outcome(steps: tuple[StepReport, ...], *, dry_run: bool) -> JobOutcome:
    """Return what the caller of a whole cycle must know.

    Args:
        steps: All of them.
        dry_run: A plan is what was asked for; otherwise a step that only planned did nothing.
    """
    outcomes = {step.outcome for step in steps}
    for outcome in (JobOutcome.BLOCKED, JobOutcome.CONFLICT, JobOutcome.DONE):
        if outcome in outcomes:
            return outcome
    return JobOutcome.PLANNED if dry_run and JobOutcome.PLANNED in outcomes else JobOutcome.NOTHING_TO_DO
