"""Flushed MemTables that may end the process that reads them, judged by what became of earlier runs.

Lance ends the process where a file is not as it expects, so such a run leaves no report. The next one decodes what it
would read in another process first, and parks what ends that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunRecord
from memwal_core.errors import MemwalError
from memwal_core.jobs.context import JobContext

SUSPECTS_FACT = "suspects"
"""Fact of a merge run: directories of flushed MemTables that it found damaged when or before their rows were read."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """What is decoded elsewhere before it is read.

    Attributes:
        directories: Flushed MemTables that the last report names, by their names in the region manifest.
        everything: Whether a later run ended without a report, so that nobody knows what it read last.
    """

    directories: frozenset[str] = frozenset()
    everything: bool = False

    def __contains__(self, directory: object) -> bool:
        """Whether a flushed MemTable is among them."""
        return self.everything or directory in self.directories


def find_suspects(context: JobContext, key: JobKey) -> Suspects:
    """Look at the earlier runs of a merge; of a run that is recorded itself, without a request."""
    ledger = context.opened.ledger
    history = ledger.remembered(key)
    try:
        is_own = history is not None
        runs = history.runs if history is not None else ledger.history(key).runs
        if runs and not runs[-1].has_ended and (is_own or context.opened.leases.in_other_hands(key, context.holder)):
            runs = runs[:-1]
    except MemwalError:
        return Suspects()  # Without its past a job runs as well.
    return suspects_of(runs)


def suspects_of(runs: Sequence[RunRecord]) -> Suspects:
    """Judge by runs that do not work any more, the newest last."""
    died = False
    for run in reversed(runs):
        died = died or not run.has_ended
        named = run.facts.get(SUSPECTS_FACT)
        if isinstance(named, list):
            return Suspects(frozenset(each for each in named if isinstance(each, str)), died)
    return Suspects(everything=died)
