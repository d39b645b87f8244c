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
from memwal_core.maintenance.cycle.report import JobName, MaintainReport, StepEnd, StepReport, worst_outcome
from memwal_core.maintenance.cycle.results import StepResult, of_catchup, of_compact, of_gc, of_merge, of_snapshot
from memwal_core.maintenance.gc import GcReport
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.ledger import Ledger, RunOutcome, RunRecord
from memwal_core.maintenance.merge import MergeReport
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.snapshot import SnapshotReport

_log = logging.getLogger(__name__)

_PASSING = (ConflictError, CommitUnknownError)
"""Errors that leave the other jobs of the cycle worth running."""

_STEPS = (JobName.MERGE, JobName.CATCHUP, JobName.COMPACT, JobName.CATCHUP, JobName.SNAPSHOT, JobName.GC)


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
class CycleJobs:
    """The jobs, ready to run on one table.

    Attributes:
        merge: Merges what is flushed.
        catch_up: Extends the indexes over merged rows.
        compact: Rewrites fragments if enough of them are small.
        build_snapshot: Publishes the regions for readers.
        collect_garbage: Deletes, or shows, what nobody needs.
    """

    merge: Callable[[], MergeReport]
    catch_up: Callable[[], CatchupReport]
    compact: Callable[[], CompactReport]
    build_snapshot: Callable[[], SnapshotReport]
    collect_garbage: Callable[[], GcReport]

    def run(self, job: JobName) -> StepResult:
        """Run one of them."""
        runs: Mapping[JobName, Callable[[], StepResult]] = {
            JobName.MERGE: lambda: of_merge(self.merge()),
            JobName.CATCHUP: lambda: of_catchup(self.catch_up()),
            JobName.COMPACT: lambda: of_compact(self.compact()),
            JobName.SNAPSHOT: lambda: of_snapshot(self.build_snapshot()),
            JobName.GC: lambda: of_gc(self.collect_garbage()),
        }
        return runs[job]()


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
        self._steps: list[StepReport] = []
        self._stop = ""

    def run(self) -> MaintainReport:
        began = self._parts.clock.monotonic()
        for job in _STEPS:
            self._steps.append(self._step(job))
        steps = tuple(self._steps)
        outcome = worst_outcome(steps, dry_run=self._parts.request.dry_run)
        seconds = self._parts.clock.monotonic() - began
        return MaintainReport(self._parts.table_uri, outcome, self._parts.request.dry_run, steps, seconds)

    def _step(self, job: JobName) -> StepReport:
        if self._stop:
            return _unrun(job, StepEnd.NOT_REACHED, self._stop)
        if job is JobName.CATCHUP and self._has_nothing_to_follow():
            return _unrun(job, StepEnd.SKIPPED, "compaction rewrote nothing, so the first catch-up still stands")
        key = JobKey(job.value)
        if not self._parts.request.dry_run and not self._parts.request.ignore_pauses:
            verdict = self._parts.ledger.may_run(key)
            if not verdict.allowed:
                return _unrun(job, StepEnd.PAUSED, verdict.reason, JobOutcome.CONFLICT)
        return self._run(job, key)

    def _has_nothing_to_follow(self) -> bool:
        """Whether this is the second catch-up and the table is as the first one left it."""
        last = self._steps[-1] if self._steps else None
        if last is None or last.job is not JobName.COMPACT:
            return False
        return last.end is not StepEnd.RAN or last.outcome in {JobOutcome.NOTHING_TO_DO, JobOutcome.PLANNED}

    def _run(self, job: JobName, key: JobKey) -> StepReport:
        began = self._parts.clock.monotonic()
        try:
            result = self._parts.jobs.run(job) if self._parts.request.dry_run else self._recorded(job, key)
        except (*_PASSING, FencedError, CorruptionError, UnavailableError) as error:
            return self._failed(job, error, self._parts.clock.monotonic() - began)
        if result.outcome is JobOutcome.BLOCKED:
            self._stop = f"{job.value} needs somebody to look at it first"
        seconds = self._parts.clock.monotonic() - began
        return StepReport(job, StepEnd.RAN, result.outcome, result.why, result.report, seconds=seconds)

    def _recorded(self, job: JobName, key: JobKey) -> StepResult:
        with self._parts.ledger.run(self._parts.new_run(key)) as progress:
            result = self._parts.jobs.run(job)
            progress.verdict = result.why
            progress.facts |= result.facts
            # A plan changed nothing, so for the past of the job there was nothing to do.
            planned = result.outcome is JobOutcome.PLANNED
            progress.outcome = RunOutcome.NOTHING_TO_DO if planned else RunOutcome(result.outcome.value)
        return result

    def _failed(self, job: JobName, error: MemwalError, seconds: float) -> StepReport:
        outcome = JobOutcome.BLOCKED if isinstance(error, FencedError | CorruptionError) else JobOutcome.CONFLICT
        if not isinstance(error, _PASSING):
            self._stop = f"{job.value} ended with {type(error).__name__}"
        _log.warning("a job of the cycle failed [table=%s, job=%s]: %s", self._parts.table_uri, job.value, error)
        described = {
            "class": type(error).__name__,
            "what": error.what,
            "next": error.remedy,
            "facts": {name: str(value) for name, value in error.facts.items()},
        }
        return StepReport(job, StepEnd.RAN, outcome, error.what, error=described, seconds=seconds)


def _unrun(job: JobName, end: StepEnd, why: str, outcome: JobOutcome = JobOutcome.NOTHING_TO_DO) -> StepReport:
    return StepReport(job, end, outcome, why)
