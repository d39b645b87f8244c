"""The runs of one job, as a value that only moves forward.

A run is recorded when it begins and once more when it ends. Ended stays ended: a late or repeated
report never brings a run back. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

from memwal_core.errors import InvalidRequestError
from memwal_core.maintenance.jobs import JobKey


class RunOutcome(StrEnum):
    """How a run stands or ended, by what follows from it."""

    RUNNING = "running"
    DONE = "done"
    NOTHING_TO_DO = "nothing_to_do"
    CONFLICT = "conflict"
    BLOCKED = "blocked"
    FAILED = "failed"
    FENCED = "fenced"

    @property
    def is_success(self) -> bool:
        """Whether the run did what there was to do."""
        return self in {RunOutcome.DONE, RunOutcome.NOTHING_TO_DO}

    @property
    def is_failure(self) -> bool:
        """Whether repeating the run at once would likely end the same way."""
        return self in {RunOutcome.CONFLICT, RunOutcome.BLOCKED, RunOutcome.FAILED}


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run of a job.

    Attributes:
        key: The job and what it worked on.
        run_id: Unique among the runs of a key.
        holder: Who ran it, for example an Airflow run.
        started: When it began, timezone UTC.
        fencing_token: Token of its lease; 0 = it ran without one.
        ended: When it ended; None while it runs, or if it died without a word.
        outcome: How it stands.
        facts: JSON-able values of its report.
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
    """What a run reports at its end.

    Attributes:
        ended: When, timezone UTC.
        outcome: Anything but ``running``.
        facts: JSON-able values of its report.
        error: Class of the error that ended it; empty if none did.
        verdict: One sentence: why it did or did not act.
    """

    ended: datetime
    outcome: RunOutcome
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    error: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """The remembered runs of one key.

    Attributes:
        key: The job and what it works on.
        runs: In the order in which they were recorded.
        forgotten: Runs recorded before these, which are no longer remembered.
    """

    key: JobKey
    runs: tuple[RunRecord, ...] = ()
    forgotten: int = 0

    def find(self, run_id: str) -> RunRecord | None:
        """Return a remembered run."""
        return next((run for run in self.runs if run.run_id == run_id), None)

    @property
    def failures_in_a_row(self) -> tuple[RunRecord, ...]:
        """The failures since the last success, oldest first.

        A run without an end that was followed by another counts as failed: its process died, and a
        table that kills its jobs must pause like one that fails them. Fenced runs count as nothing.
        """
        failures: list[RunRecord] = []
        for position in range(len(self.runs) - 1, -1, -1):
            run = self.runs[position]
            if run.outcome.is_success:
                break
            if run.outcome.is_failure or (not run.has_ended and position < len(self.runs) - 1):
                failures.append(run)
        return tuple(reversed(failures))


def begin_run(history: History, run: RunRecord, max_runs: int) -> History | None:
    """Record that a run begins.

    Args:
        history: What is remembered.
        run: A run that has not ended.
        max_runs: Runs to remember. Runs that found nothing to do are forgotten first.

    Returns:
        The new history; None if the run is recorded already.

    Raises:
        InvalidRequestError: The run belongs to another key, or has ended.
    """
    if run.key != history.key or run.has_ended:
        raise InvalidRequestError(
            "this is not the beginning of a run of this job",
            remedy="record the beginning of a run under its own key",
            expected=str(history.key),
            found=str(run.key),
            outcome=run.outcome.value,
        )
    if history.find(run.run_id) is not None:
        return None
    return _trimmed(replace(history, runs=(*history.runs, run)), max_runs)


def end_run(history: History, run: RunRecord, end: RunEnd, max_runs: int) -> History | None:
    """Record that a run ended. The first report counts; later ones change nothing.

    Args:
        history: What is remembered.
        run: The run as it began, in case its beginning was not recorded or is forgotten.
        end: How it ended.
        max_runs: Runs to remember.

    Returns:
        The new history; None if the run has ended already.

    Raises:
        InvalidRequestError: The run belongs to another key, or the end is none.
    """
    if run.key != history.key or end.outcome is RunOutcome.RUNNING:
        raise InvalidRequestError(
            "this is not the end of a run of this job",
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
    # The newest run stays whatever it is; of the others, what says least goes first.
    *older, newest = history.runs
    idle = [run for run in older if run.outcome is RunOutcome.NOTHING_TO_DO][:excess]
    dropped = {run.run_id for run in [*idle, *(run for run in older if run not in idle)][:excess]}
    kept = (*(run for run in older if run.run_id not in dropped), newest)
    return replace(history, runs=kept, forgotten=history.forgotten + excess)
