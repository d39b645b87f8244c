"""Plan a maintenance cycle: its steps in their order, and what decides between two of them. Pure.

A cycle that runs in one process (``run``) and a cycle whose steps are tasks of a scheduler walk the same plan:
only this module decides the order, what a step may change, and why it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.coordination.ledger import RunVerdict
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    FrozenError,
    InvalidRequestError,
    MemwalError,
)
from memwal_core.jobs.catchup.request import CatchupRequest
from memwal_core.jobs.compact.request import CompactRequest
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityGate, QualityRequest, Stages
from memwal_core.jobs.request import JobRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.verify.request import VerifyRequest
from memwal_core.settings import Settings


class StepName(StrEnum):
    """A step of the cycle; a job may have several."""

    FLUSH = "flush"
    AUDIT = "audit"
    MERGE = "merge"
    VERIFY = "verify"
    CATCH_UP = "catch_up"
    CHECK = "check"
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
class CycleStep:
    """One step.

    Attributes:
        follows: A step without whose work this one has nothing to do; None = it stands alone.
        every_s: Seconds between two runs, whatever the time between two cycles.
        only_plans: Whether it changes nothing in any cycle, dry run or not.
        off: Why nobody wants it; empty if somebody does.
        is_advisory: Whether it only reports, so that its failure keeps no other step from running.
        holds_by_itself: Whether what it found wrong is held back from the steps after it, so that they may run.
    """

    name: StepName
    request: JobRequest
    follows: StepName | None = None
    every_s: float = 0.0
    only_plans: bool = False
    off: str = ""
    is_advisory: bool = False
    holds_by_itself: bool = False

    @property
    def job(self) -> str:
        """Name of its job."""
        return self.request.info.name


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Why a step does not run: the kind of reason, what it means to the cycle, and one sentence."""

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
        """Return a step; an unknown name is the caller's mistake (``InvalidRequestError``)."""
        found = next((step for step in self.steps if step.name == name), None)
        if found is None:
            known = [step.name.value for step in self.steps]
            raise InvalidRequestError("the cycle has no such step", remedy="name a known step", step=name, known=known)
        return found

    def left_out(
        self, step: CycleStep, before: Mapping[StepName, JobOutcome], pause: RunVerdict, stopped: str = ""
    ) -> LeftOut | None:
        """Return why a step does not run, None if it does.

        ``before`` has the outcomes of the steps that ran; ``pause`` says whether the job's past allows a run;
        ``stopped`` says why the cycle has ended, and is empty while it has not.
        """
        if stopped:
            return LeftOut(StepEnd.NOT_REACHED, JobOutcome.NOTHING_TO_DO, stopped)
        if step.off:
            return LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, step.off)
        if step.follows is not None and _changed_nothing(before.get(step.follows), step):
            why = f"{step.follows.value.replace('_', ' ')} changed nothing, so what ran before it still stands"
            return LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)
        if _is_recent(step, pause):
            why = f"it ran {pause.since_success_s:.0f} s ago, and runs every {step.every_s:.0f} s"
            return LeftOut(StepEnd.SKIPPED, JobOutcome.NOTHING_TO_DO, why)
        if not (pause.allowed or step.only_plans or self.ignore_pauses):
            return LeftOut(StepEnd.PAUSED, JobOutcome.CONFLICT, pause.reason)
        return None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "ignore_pauses": self.ignore_pauses,
            "steps": [
                {
                    "step": step.name.value,
                    "job": step.job,
                    "follows": None if step.follows is None else step.follows.value,
                    "request": step.request.to_json(),
                }
                for step in self.steps
            ],
        }


_CHANGED_NOTHING = {None, JobOutcome.NOTHING_TO_DO}
"""Outcomes that leave the table as it was; None is a step that did not run."""


def _changed_nothing(outcome: JobOutcome | None, step: CycleStep) -> bool:
    """Tell whether a step left the table as it was, for the one that follows it; on a dry run, whether it would."""
    return outcome in _CHANGED_NOTHING or (outcome is JobOutcome.PLANNED and not step.request.dry_run)


_PASSING = (ConflictError, CommitUnknownError)
"""Errors after which the other jobs are still worth running: none depends on what another one did."""


def _is_recent(step: CycleStep, past: RunVerdict) -> bool:
    # A run from the future comes from another clock; waiting for it could take forever.
    return past.since_success_s is not None and 0 <= past.since_success_s < step.every_s


def plan_cycle(request: MaintainRequest, settings: Settings) -> CyclePlan:
    """Return the steps of a cycle in the one order in which every job helps the next.

    What writers left in their WALs is flushed first, so that the merge takes it on; a cycle that comes sooner than
    ``flush.min_age_s`` after the last look does not look for it. Indexes follow the merge. Compaction needs indexes
    that cover all fragments alike, and makes Lance forget how far they are, so they catch up again if it changed
    anything. The snapshot shows readers the result. Only then is it clear what nothing needs any more.

    The quality gate stands around the merge: what it would take is audited, and the table is verified and checked
    before versions are removed that could bring its rows back. Each of its steps runs only if what it looks at has
    changed since it last did; the table says so, because the cycle that merged may have ended before.
    """
    dry_run = request.dry_run
    off = "" if request.checks is not QualityGate.OFF else "no checks are asked for"
    advisory = request.checks is QualityGate.ADVISORY
    merge = MergeRequest(dry_run=dry_run, leave_held=True)
    if request.checks is QualityGate.MANDATORY:
        # Writers go on between the audit and the merge.
        merge = merge.model_copy(update={"audited_only": True, "suites": request.suites})
    audit = QualityRequest(
        dry_run=dry_run, stage=Stages.BEFORE, suites=request.suites, advisory=advisory, due_only=True
    )
    check = QualityRequest(dry_run=dry_run, stage=Stages.AFTER, advisory=advisory, due_only=True)
    counted = "" if off else "the checks after the merge count every key"
    catch_up = CatchupRequest(dry_run=dry_run)
    steps = (
        CycleStep(StepName.FLUSH, FlushRequest(dry_run=dry_run, due_only=True), every_s=settings.flush.min_age_s),
        CycleStep(StepName.AUDIT, audit, off=off, is_advisory=advisory, holds_by_itself=True),
        CycleStep(StepName.MERGE, merge),
        CycleStep(
            StepName.VERIFY,
            VerifyRequest(dry_run=dry_run, due_only=True),
            every_s=settings.quality.verify_every_s,
            off=counted,
        ),
        CycleStep(StepName.CATCH_UP, catch_up),
        CycleStep(StepName.CHECK, check, off=off, is_advisory=advisory),
        CycleStep(StepName.COMPACT, CompactRequest(dry_run=dry_run, remove_versions=request.remove_versions)),
        CycleStep(StepName.CATCH_UP_AGAIN, catch_up, follows=StepName.COMPACT),
        CycleStep(StepName.SNAPSHOT, SnapshotRequest(dry_run=dry_run)),
        # Nothing is deleted unless that was asked for.
        CycleStep(
            StepName.COLLECT_GARBAGE, GcRequest(dry_run=dry_run or not request.delete), only_plans=not request.delete
        ),
    )
    return CyclePlan(steps, request.ignore_pauses)


def end_of_cycle(step: CycleStep, ended: JobOutcome | MemwalError) -> str:
    """Return why no later step may run; empty if the next one may.

    The next job might destroy the evidence of what a person must examine, and would also fail on storage that
    does not answer. A conflict, or a job that another process runs, ends nothing.
    """
    if isinstance(ended, FrozenError):
        return "the table is frozen"
    if step.is_advisory:
        return ""
    if isinstance(ended, MemwalError):
        return "" if isinstance(ended, _PASSING) else f"{step.job} ended with {type(ended).__name__}"
    held = ended is JobOutcome.BLOCKED and not step.holds_by_itself
    return f"{step.job} needs a person first" if held else ""


def outcome_of_error(error: MemwalError) -> JobOutcome:
    """Return what an error means to the cycle."""
    if isinstance(error, FrozenError):
        return JobOutcome.FROZEN
    if isinstance(error, FencedError | CorruptionError):
        return JobOutcome.BLOCKED
    return JobOutcome.CONFLICT if isinstance(error, ConflictError) else JobOutcome.FAILED
