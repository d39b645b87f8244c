"""The runs of one job, as a value that only moves forward. All functions are pure.

A run is recorded when it begins and once more when it ends. Ended stays ended: a late or repeated report never
brings a run back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError


class RunOutcome(StrEnum):
    """How a run stands or ended, by its consequences."""

    RUNNING = "running"
    DONE = "done"
    NOTHING_TO_DO = "nothing_to_do"
    CONFLICT = "conflict"
    BLOCKED = "blocked"
    PARTIAL = "partial"
    FAILED = "failed"
    FENCED = "fenced"
    REFUSED = "refused"
    """The request did not fit the table: says nothing about the job."""
    FROZEN = "frozen"
    """The table was frozen, and nothing was done: says nothing about the job."""
    INTERRUPTED = "interrupted"
    """A person or a scheduler ended it: says nothing about the job."""
    BUSY = "busy"
    """Of a cycle: it left jobs to other runs that hold their leases, and no other conflict kept it from anything."""

    @property
    def is_success(self) -> bool:
        """Whether the run did everything that could be done."""
        return self in {RunOutcome.DONE, RunOutcome.NOTHING_TO_DO, RunOutcome.PARTIAL}

    @property
    def is_failure(self) -> bool:
        """Whether repeating the run at once would likely end the same way."""
        return self in {RunOutcome.CONFLICT, RunOutcome.BLOCKED, RunOutcome.FAILED}


AFTER_DEATH = (
    "unless it still works, its process died: run `memwal doctor --deep`, which names files that end processes; "
    "if it names none, find out whether memory was short"
)
"""What to do about a run without an end."""

_DID_NOTHING = {RunOutcome.NOTHING_TO_DO, RunOutcome.FROZEN}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a job.

    Attributes:
        key: The job and what it worked on.
        run_id: Unique among the runs of a key.
        started: When it began, in UTC.
        fencing_token: Token of its lease; 0 if it ran without one.
        ended: When it ended; None while it runs, or if it died without a report.
        error: Class of the error that ended it; empty if none did.
        verdict: One sentence: why it did or did not act.
    """

    key: JobKey
    run_id: str
    holder: str
    started: datetime
    fencing_token: int = 0
    ended: datetime | None = None
    outcome: RunOutcome = RunOutcome.RUNNING
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""
    verdict: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether the run reported its end."""
        return self.outcome is not RunOutcome.RUNNING


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What a run reports at its end, as in ``RunRecord``; the outcome is never ``running``."""

    ended: datetime
    outcome: RunOutcome
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The remembered runs of one key, in the order of recording; ``forgotten`` counts the runs dropped before these."""

    key: JobKey
    runs: tuple[RunRecord, ...] = ()
    forgotten: int = 0

    def find(self, run_id: str) -> RunRecord | None:
        """Return a remembered run."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    @property
    def died_before(self) -> RunRecord | None:
        """The run before the newest one, if its process ended without a report; None otherwise."""
        before = self.runs[-2] if len(self.runs) > 1 else None
        return before if before is not None and not before.has_ended else None

    @property
    def failures_in_a_row(self) -> tuple[RunRecord, ...]:
        """The failures since the last success, oldest first.

        A run without an end that was followed by another counts as failed: its process died, and a
        table that kills its jobs must pause like one that fails them. Fenced, refused, interrupted and busy runs
        count as nothing.
        """
        failures: list[RunRecord] = []
        for position in range(len(self.runs) - 1, -1, -1):
            run = self.runs[position]
            if run.outcome.is_success:
                break
            if run.outcome.is_failure or (not run.has_ended and position < len(self.runs) - 1):
                failures.append(run)
        return tuple(reversed(failures))


def runs_in(histories: Iterable[History]) -> list[RunRecord]:
    """Return the runs of several histories, the newest last."""
    return sorted((run for each in histories for run in each.runs), key=lambda run: (run.started, run.key))


def begin_run(history: History, run: RunRecord, max_runs: int) -> History | None:
    """Record that a run begins; None if it is recorded already.

    Runs that did nothing are the first to be forgotten.
    """
    if run.key != history.key or run.has_ended:
        raise InvalidRequestError(
            "the record is not the beginning of a run of this job",
            remedy="record the beginning of a run under its own key",
            expected=str(history.key),
            found=str(run.key),
            outcome=run.outcome.value,
        )
    if history.find(run.run_id) is not None:
        return None
    return _trimmed(replace(history, runs=(*history.runs, run)), max_runs)


def end_run(history: History, run: RunRecord, end: RunEnd, max_runs: int) -> History | None:
    """Record that a run ended, even if its beginning is unknown; None if it has ended already.

    Only the first report counts.
    """
    if run.key != history.key or end.outcome is RunOutcome.RUNNING:
        raise InvalidRequestError(
            "the record is not the end of a run of this job",
            remedy="record an outcome other than running, under the run's own key",
            expected=str(history.key),
            found=str(run.key),
            outcome=end.outcome.value,
        )
    known = history.find(run.run_id)
    if known is not None and known.has_ended:
        return None
    ended = replace(
        known or run, ended=end.ended, outcome=end.outcome, facts=end.facts, error=end.error, verdict=end.verdict
    )
    if known is None:
        return _trimmed(replace(history, runs=(*history.runs, ended)), max_runs)
    return replace(history, runs=tuple(ended if each is known else each for each in history.runs))


def _trimmed(history: History, max_runs: int) -> History:
    excess = len(history.runs) - max_runs
    if excess <= 0:
        return history
    # The newest run stays whatever it is; of the others, those that did nothing go first.
    *older, newest = history.runs
    idle = [run for run in older if run.outcome in _DID_NOTHING][:excess]
    dropped = {run.run_id for run in [*idle, *(run for run in older if run not in idle)][:excess]}
    kept = (*(run for run in older if run.run_id not in dropped), newest)
    return replace(history, runs=kept, forgotten=history.forgotten + excess)
