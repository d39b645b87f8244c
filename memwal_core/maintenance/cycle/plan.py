"""The plan of a maintenance cycle: its steps in their order, and what decides between two of them. Pure.

Both who runs a cycle in one process (``run``) and who runs it as tasks of a scheduler walk this
plan: the order, what a step may change, and why it is left out are decided here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidRequestError,
    MemwalError,
)
from memwal_core.maintenance.ledger import RunVerdict
from memwal_core.maintenance.outcome import JobOutcome

CYCLE_JOB = "maintain"
"""Job under which the ledger remembers that a cycle began."""


class JobName(StrEnum):
    """A job of the cycle, under the name that its lease and its history carry."""

    MERGE = "merge"
    CATCHUP = "catchup"
    COMPACT = "compact"
    SNAPSHOT = "snapshot"
    GC = "gc"


class StepName(StrEnum):
    """A step of the cycle; the same job may have several."""

    MERGE = "merge"
    CATCH_UP = "catch_up"
    COMPACT = "compact"
    CATCH_UP_AGAIN = "catch_up_again"
    SNAPSHOT = "snapshot"
    COLLECT_GARBAGE = "collect_garbage"


class StepEnd(StrEnum):
    """Whether a step of the cycle ran."""

    RAN = "ran"
    SKIPPED = "skipped"
    PAUSED = "paused"
    NOT_REACHED = "not_reached"


@dataclass(frozen=True, slots=True)
class MaintainRequest:
    """How to run a cycle.

    Attributes:
        dry_run: Only plan, each job on the present state.
        delete: Let garbage collection delete; otherwise it shows what it would delete.
        remove_versions: Let compaction remove old table versions, too.
        ignore_pauses: Run jobs that pause because they kept failing.
        holder: Who takes the leases; unique per run. One is made up if None.
    """

    dry_run: bool = False
    delete: bool = False
    remove_versions: bool = False
    ignore_pauses: bool = False
    holder: str | None = None


@dataclass(frozen=True, slots=True)
class CycleStep:
    """One step.

    Attributes:
        name: Which.
        job: The job that it runs.
        follows: A step without whose work this one has nothing to do; None = it stands alone.
        dry_run: Only plan.
        remove_versions: Remove old table versions, too (compaction).
    """

    name: StepName
    job: JobName
    follows: StepName | None = None
    dry_run: bool = False
    remove_versions: bool = False


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a step does not run.

    Attributes:
        end: Which kind of reason it is.
        outcome: What that means to the cycle.
        why: One sentence.
    """

    end: StepEnd
    outcome: JobOutcome
    why: str


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """What a cycle runs.

    Attributes:
        steps: In their order.
        ignore_pauses: Whether jobs run that pause because they kept failing.
    """

    steps: tuple[CycleStep, ...]
    ignore_pauses: bool

    def step(self, name: str) -> CycleStep:
        """Return a step.

        Raises:
            InvalidRequestError: There is none of this name.
        """
        found = next((step for step in self.steps if step.name == name), None)
        if found is None:
            known = [step.name.value for step in self.steps]
            raise InvalidRequestError("the cycle has no such step", remedy="name one it has", step=name, known=known)
        return found

    def left_out(
        self, step: CycleStep, before: Mapping[StepName, JobOutcome], pause: RunVerdict, stopped: str = ""
    ) -> LeftOut | None:
        """Return why a step does not run; None if it does.

        Args:
            step: Which.
            before: Outcomes of the steps that ran before it.
            pause: Whether the past of its job allows it to run.
            stopped: Why the cycle has ended; empty if it has not.
        """
        if stopped:
            return LeftOut(StepEnd.NOT_REACHED, JobOutcome.NOTHING_TO_DO, stopped)
        if step.follows is not None and before.get(step.follows) in _CHANGED_NOTHING:
            why = f"{step.follows.value.replace('_', ' ')} changed nothing, so what ran before it still stands"
            return LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)
        if not (pause.allowed or step.dry_run or self.ignore_pauses):
            return LeftOut(StepEnd.PAUSED, JobOutcome.CONFLICT, pause.reason)
        return None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "ignore_pauses": self.ignore_pauses,
            "steps": [
                {
                    "step": step.name.value,
                    "job": step.job.value,
                    "follows": None if step.follows is None else step.follows.value,
                    "dry_run": step.dry_run,
                    "remove_versions": step.remove_versions,
                }
                for step in self.steps
            ],
        }


_CHANGED_NOTHING = {None, JobOutcome.NOTHING_TO_DO, JobOutcome.PLANNED}
"""Outcomes, None for a step that did not run, after which the table is as it was."""

_PASSING = (ConflictError, CommitUnknownError)
"""Errors that leave the other jobs of the cycle worth running: none rests on what another one did."""


def plan_cycle(request: MaintainRequest) -> CyclePlan:
    """Return the steps of a cycle in the one order in which every job helps the next.

    Indexes follow the merge. Compaction needs indexes that cover all fragments alike, and makes Lance
    forget how far they are, so they are brought up again if it changed anything. The snapshot shows
    readers the result. Only then is it clear what nobody needs any more.

    Args:
        request: How to run it.
    """
    dry_run = request.dry_run
    steps = (
        CycleStep(StepName.MERGE, JobName.MERGE, dry_run=dry_run),
        CycleStep(StepName.CATCH_UP, JobName.CATCHUP, dry_run=dry_run),
        CycleStep(StepName.COMPACT, JobName.COMPACT, dry_run=dry_run, remove_versions=request.remove_versions),
        CycleStep(StepName.CATCH_UP_AGAIN, JobName.CATCHUP, follows=StepName.COMPACT, dry_run=dry_run),
        CycleStep(StepName.SNAPSHOT, JobName.SNAPSHOT, dry_run=dry_run),
        # Nothing is deleted unless that was asked for.
        CycleStep(StepName.COLLECT_GARBAGE, JobName.GC, dry_run=dry_run or not request.delete),
    )
    return CyclePlan(steps, request.ignore_pauses)


def end_of_cycle(step: CycleStep, ended: JobOutcome | MemwalError) -> str:
    """Return why nothing may run after a step; empty if the next one may.

    What needs a human may be what the next job would destroy the evidence of. Storage that does not
    answer would fail the next job, too. A conflict, or a job that somebody else runs, ends nothing.

    Args:
        step: The step that ended.
        ended: Its outcome, or the error that it ended with.
    """
    if isinstance(ended, MemwalError):
        return "" if isinstance(ended, _PASSING) else f"{step.job.value} ended with {type(ended).__name__}"
    return f"{step.job.value} needs somebody to look at it first" if ended is JobOutcome.BLOCKED else ""


def outcome_of_error(error: MemwalError) -> JobOutcome:
    """Return what an error means to the cycle."""
    return JobOutcome.BLOCKED if isinstance(error, FencedError | CorruptionError) else JobOutcome.CONFLICT
