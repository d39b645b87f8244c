"""Running a maintenance cycle: one job after another, each recorded, and a stop where a human is needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FencedError,
    MemwalError,
    UnavailableError,
)
from memwal_core.maintenance.catchup import CatchupReport
from memwal_core.maintenance.compact import CompactReport
from memwal_core.maintenance.cycle.plan import (
    CyclePlan,
    CycleStep,
    JobName,
    LeftOut,
    MaintainRequest,
    StepEnd,
    StepName,
    end_of_cycle,
    outcome_of_error,
    plan_cycle,
)
from memwal_core.maintenance.cycle.report import MaintainReport, StepReport, worst_outcome
from memwal_core.maintenance.cycle.results import StepResult, of_catchup, of_compact, of_gc, of_merge, of_snapshot
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.ledger import Ledger, RunOutcome, RunRecord
from memwal_core.maintenance.merge import MergeReport
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.snapshot import SnapshotReport

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CycleJobs:
    """The jobs, ready to run on one table as a step says.

    Attributes:
        merge: Merges what is flushed.
        catch_up: Extends the indexes over merged rows.
        compact: Rewrites fragments if enough of them are small.
        build_snapshot: Publishes the regions for readers.
        collect_garbage: Deletes, or shows, what nobody needs.
    """

    merge: Callable[[CycleStep], MergeReport]
    catch_up: Callable[[CycleStep], CatchupReport]
    compact: Callable[[CycleStep], CompactReport]
    build_snapshot: Callable[[CycleStep], SnapshotReport]
    collect_garbage: Callable[[CycleStep], GcReport]

    def run(self, step: CycleStep) -> StepResult:
        """Run one of them."""
        runs: Mapping[JobName, Callable[[], StepResult]] = {
            JobName.MERGE: lambda: of_merge(self.merge(step)),
            JobName.CATCHUP: lambda: of_catchup(self.catch_up(step)),
            JobName.COMPACT: lambda: of_compact(self.compact(step)),
            JobName.SNAPSHOT: lambda: of_snapshot(self.build_snapshot(step)),
            JobName.GC: lambda: of_gc(self.collect_garbage(step)),
        }
        return runs[step.job]()


@dataclass(frozen=True, slots=True)
class CycleParts:
    """What a cycle works with.

    Attributes:
        table_uri: The base table.
        jobs: What it runs.
        ledger: Remembers the runs, and says which job pauses.
        new_run: Makes the record of a run that begins now.
        clock: Measures.
        request: How to run them.
    """

    table_uri: str
    jobs: CycleJobs
    ledger: Ledger
    new_run: Callable[[JobKey], RunRecord]
    clock: Clock
    request: MaintainRequest


def maintain(parts: CycleParts) -> MaintainReport:
    """Merge, catch indexes up, compact if it is due, catch up again, publish a snapshot, collect garbage.

    A job that somebody else runs, or that meets a conflict, does not keep the others from running:
    none rests on what another one did. A job that needs a human ends the cycle, since what it found
    may be what the next one would destroy the evidence of; so does storage that does not answer.
    Running a cycle again, or two at once, does no harm.

    Args:
        parts: What to work with.

    Raises:
        InvalidRequestError: The table has no MemWAL index, or a job refuses its settings.
    """
    return _Cycle(parts).run()


class _Cycle:
    """One cycle's steps so far."""

    def __init__(self, parts: CycleParts) -> None:
        self._parts = parts
        self._plan: CyclePlan = plan_cycle(parts.request)
        self._steps: list[StepReport] = []
        self._stopped = ""

    def run(self) -> MaintainReport:
        began = self._parts.clock.monotonic()
        for step in self._plan.steps:
            self._steps.append(self._step(step))
        steps = tuple(self._steps)
        outcome = worst_outcome(steps, dry_run=self._parts.request.dry_run)
        seconds = self._parts.clock.monotonic() - began
        return MaintainReport(self._parts.table_uri, outcome, self._parts.request.dry_run, steps, seconds)

    def _step(self, step: CycleStep) -> StepReport:
        key = JobKey(step.job.value)
        left_out = self._plan.left_out(step, self._before(), self._parts.ledger.may_run(key), self._stopped)
        return _unrun(step, left_out) if left_out is not None else self._run(step, key)

    def _before(self) -> dict[StepName, JobOutcome]:
        return {report.step: report.outcome for report in self._steps if report.end is StepEnd.RAN}

    def _run(self, step: CycleStep, key: JobKey) -> StepReport:
        began = self._parts.clock.monotonic()
        try:
            result = self._parts.jobs.run(step) if self._parts.request.dry_run else self._recorded(step, key)
        except (ConflictError, CommitUnknownError, FencedError, CorruptionError, UnavailableError) as error:
            return self._failed(step, error, self._parts.clock.monotonic() - began)
        self._stopped = end_of_cycle(step, result.outcome)
        seconds = self._parts.clock.monotonic() - began
        return StepReport(step.name, step.job, StepEnd.RAN, result.outcome, result.why, result.report, seconds=seconds)

    def _recorded(self, step: CycleStep, key: JobKey) -> StepResult:
        with self._parts.ledger.run(self._parts.new_run(key)) as progress:
            result = self._parts.jobs.run(step)
            progress.verdict = result.why
            progress.facts |= result.facts
            # A plan changed nothing, so for the past of the job there was nothing to do.
            planned = result.outcome is JobOutcome.PLANNED
            progress.outcome = RunOutcome.NOTHING_TO_DO if planned else RunOutcome(result.outcome.value)
        return result

    def _failed(self, step: CycleStep, error: MemwalError, seconds: float) -> StepReport:
        self._stopped = end_of_cycle(step, error)
        _log.warning("a job of the cycle failed [table=%s, job=%s]: %s", self._parts.table_uri, step.job.value, error)
        described = {
            "class": type(error).__name__,
            "what": error.what,
            "next": error.remedy,
            "facts": {name: str(value) for name, value in error.facts.items()},
        }
        outcome = outcome_of_error(error)
        return StepReport(step.name, step.job, StepEnd.RAN, outcome, error.what, error=described, seconds=seconds)


def _unrun(step: CycleStep, left_out: LeftOut) -> StepReport:
    return StepReport(step.name, step.job, left_out.end, left_out.outcome, left_out.why)
