"""Every run of a job in the table's ledger, whoever started it: library, command, Spark application, task or cycle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import AFTER_DEATH, RunOutcome, RunRecord
from memwal_core.errors import CorruptionError, DuplicateKeysError
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.job import Proof, ReportT
from memwal_core.jobs.memory import MEMORY_LIMIT_FACT, PEAK_MEMORY_FACT, memory_limit_bytes, peak_memory_bytes
from memwal_core.jobs.verify.facts import duplicates_in

_log = logging.getLogger(__name__)


def recorded(
    opened: OpenTable,
    run: RunRecord,
    work: Callable[[], ReportT],
    outcome_of: Callable[[ReportT], RunOutcome],
    remember: Callable[[ReportT], None],
    beside_begin: Callable[[], object] = lambda: None,
) -> ReportT:
    """Run a job and record it. A ledger that cannot be written is logged and keeps no job from working.

    What was seen is remembered while the end is recorded: a process that dies between the two leaves a run without an
    end or a table to be seen again, whichever was written first.

    Raises:
        MemwalError: What the job raised, after it was recorded.
    """
    with opened.ledger.run(run, beside_begin) as progress:
        _tell_of_death(opened, run.key)
        try:
            report = work()
        except DuplicateKeysError as error:
            freeze_for_duplicates(opened, error, run.key.job)
            progress.facts.update(duplicates_in(error))
            raise
        finally:
            progress.facts.update({PEAK_MEMORY_FACT: peak_memory_bytes(), MEMORY_LIMIT_FACT: memory_limit_bytes()})
        progress.outcome, progress.verdict = outcome_of(report), report.why()
        progress.facts.update(report.facts())
        progress.beside_end = partial(remember, report)
    return report


def _tell_of_death(opened: OpenTable, key: JobKey) -> None:
    """Say that the run before this one died, at which this one may die, too, without a word."""
    history = opened.ledger.remembered(key)
    died = history.died_before if history is not None else None
    if died is not None:
        _log.warning(
            "the run of %s that began at %s has no end; %s [table=%s]", key, died.started, AFTER_DEATH, opened.uri
        )


def freeze_for_duplicates(opened: OpenTable, error: DuplicateKeysError, by: str) -> None:
    """Freeze a table that holds a key more than once: what merges it further hides which row is right."""
    opened.freezes.add(FreezeCause.DUPLICATE_KEYS, error.facts, by)


def recorded_proof(
    context: JobContext,
    key: JobKey,
    prove: Callable[[], Proof],
    facts_of: Callable[[CorruptionError], Mapping[str, object]],
) -> Proof:
    """Prove what a job promised, and record what was found, right or wrong.

    Raises:
        MemwalError: What the proof raised, after it was recorded.
    """
    with context.opened.ledger.run(context.opened.new_run(key, context.holder)) as progress:
        try:
            proof = prove()
        except CorruptionError as error:
            if isinstance(error, DuplicateKeysError):
                freeze_for_duplicates(context.opened, error, key.job)
            progress.facts.update(facts_of(error))
            raise
        progress.verdict = proof.summary
        progress.facts.update(proof.facts)
    return proof
