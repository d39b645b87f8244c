"""Extending one index, and proving that it is what it was but for the new rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from memwal_core.base_table import BaseTable, extend_index, read_coverage, vector_model_digest
from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, UnavailableError
from memwal_core.maintenance.catchup.plan import CatchupPlan, CatchupSurvey, IndexPlan
from memwal_core.maintenance.outcome import CheckLease, Reach, no_lease, nowhere
from memwal_core.metrics import INSTRUMENTS, Instruments
from memwal_core.rng import Rng
from memwal_core.settings import CatchupSettings

_log = logging.getLogger(__name__)

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class CatchupParts:
    """What a catch-up works with.

    Attributes:
        table: The base table.
        settings: Segments and attempts.
        clock: Measures and waits.
        rng: Spreads the waits of rivals.
        check_lease: Called before each write.
        reach: Called at ``catchup.surveyed``, ``catchup.extended`` and ``catchup.recorded``; crash
            tests end the process there.
        metrics: Counts what was done.
    """

    table: BaseTable
    settings: CatchupSettings
    clock: Clock
    rng: Rng
    check_lease: CheckLease = no_lease
    reach: Reach = nowhere
    metrics: Instruments = INSTRUMENTS

    def back_off(self, attempt: int) -> None:
        """Wait after a lost attempt; longer and more spread each time."""
        self.clock.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * self.rng.random())


@dataclass(frozen=True, slots=True)
class Extension:
    """The end of an extension.

    Attributes:
        attempts: Tries, the successful one included.
        rows_indexed: Rows that were unindexed when it began.
    """

    attempts: int
    rows_indexed: int


def extend(parts: CatchupParts, name: str, look: Callable[[], tuple[CatchupSurvey, CatchupPlan]]) -> Extension:
    """Extend an index over the newest version, again after each conflict.

    Lance records catch-up in the same commit, with the merge progress of the version that the
    extension read, so a merge that lands meanwhile is not credited.

    Args:
        parts: What to work with.
        name: The index.
        look: Surveys and plans anew.

    Returns:
        What was done; no attempt if somebody else did it first.

    Raises:
        ConflictError: Others were first in every attempt.
        CommitUnknownError: So often it remained unknown whether the index was extended.
        CorruptionError: The index is not what it was, or lacks rows that it was extended by.
        UnavailableError: Storage failed, or a file of the index is missing.
    """
    tried = 0
    while True:
        survey, plan = look()
        index = plan.named(name)
        if index is None or not index.verdict.extends:
            return Extension(tried, 0)
        parts.reach("catchup.surveyed")
        parts.check_lease()
        tried += 1
        try:
            version = _extend_once(parts, survey, index)
        except (ConflictError, CommitUnknownError) as error:
            _log.info("index not extended, looking again [index=%s, attempt=%d, error=%s]", name, tried, error)
            if tried >= parts.settings.max_attempts:
                raise
            parts.back_off(tried)
            continue
        parts.reach("catchup.extended")
        _log.info("index extended [index=%s, version=%d, rows=%d]", name, version, index.unindexed_rows)
        return Extension(tried, index.unindexed_rows)


def _extend_once(parts: CatchupParts, survey: CatchupSurvey, index: IndexPlan) -> int:
    """Extend an index and check the result.

    Raises:
        CorruptionError: Centroids or quantizer have changed, or rows of the version read are missing.
    """
    table, read = parts.table, survey.version
    # An index that has no model yet gets its first one now.
    has_model = index.is_vector and index.is_trained
    before = vector_model_digest(table, read, index.name) if has_model else ""
    version = extend_index(table, index.name, read_version=read, segments_to_merge=index.segments_to_merge)
    if has_model and vector_model_digest(table, version, index.name) != before:
        raise CorruptionError(
            "extending a vector index changed its centroids or its quantizer",
            remedy="stop catch-up; distances in MemTables and base table do not compare any more, create the index "
            "under another name and rebuild the MemTables' indexes from it",
            index=index.name,
            version_before=read,
            version_after=version,
        )
    _require_covered(table, index.name, read, version)
    return version


def _require_covered(table: BaseTable, name: str, read: int, version: int) -> None:
    """Check that an index covers every fragment of the version that it was extended from.

    Raises:
        CorruptionError: It does not, so its recorded catch-up cannot be trusted.
    """
    old, new = read_coverage(table, read), read_coverage(table, version)
    index = new.named(name)
    missing = sorted(old.fragments.intersection(index.unindexed_fragments if index is not None else new.fragments))
    if missing:
        raise CorruptionError(
            "an index lacks rows that it was just extended by",
            remedy="stop garbage collection of this table; drop the index and create it again",
            table=table.uri,
            index=name,
            version=version,
            fragments=missing,
        )


RETRYABLE = (ConflictError, CommitUnknownError, UnavailableError)
"""Failures that a later run may not meet again."""
