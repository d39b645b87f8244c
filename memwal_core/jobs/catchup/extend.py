"""Extend one index and prove that only the new rows changed it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from memwal_core.base_table import BaseTable, extend_index, read_coverage, vector_model_digest
from memwal_core.base_table.commit.strict_commit import if_removed
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, ObjectNotFoundError, UnavailableError
from memwal_core.failpoints import Failpoint
from memwal_core.jobs.catchup.on_executors import extend_on_executors
from memwal_core.jobs.catchup.plan import CatchupPlan, CatchupSurvey, IndexPlan
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.sharing.sharing import Sharing

_log = logging.getLogger(__name__)

CATCHUP_SURVEYED = Failpoint("catchup.surveyed")
CATCHUP_EXTENDED = Failpoint("catchup.extended")


@dataclass(frozen=True, slots=True)
class Extension:
    """The end of an extension.

    ``attempts`` counts the successful try, ``rows_indexed`` the rows that were unindexed before.
    """

    attempts: int
    rows_indexed: int


def extend(
    context: JobContext,
    sharing: Sharing | None,
    name: str,
    look: Callable[[], tuple[CatchupSurvey, CatchupPlan]],
    tried: int = 0,
) -> Extension:
    """Extend an index over the newest version, again after each conflict; zero attempts if nothing was left to do.

    Attempts that ended without a certain outcome before are ``tried``.

    Lance records catch-up in the same commit, with the merge progress of the version that the extension read,
    so it does not credit a merge that lands meanwhile. A ``CorruptionError`` means that the index must not be
    trusted any longer.
    """
    while True:
        survey, plan = look()
        index = plan.named(name)
        if index is None or not index.verdict.extends:
            return Extension(tried, 0)
        context.failpoints.hit(CATCHUP_SURVEYED)
        context.guard()
        tried += 1
        try:
            version = _extend_once(context, sharing, survey, index)
        except (ConflictError, CommitUnknownError, ObjectNotFoundError) as found:
            error = if_removed(context.base.store, survey.version) if isinstance(found, ObjectNotFoundError) else found
            if error is None:
                raise
            _log.info("index not extended, retrying [index=%s, attempt=%d, error=%s]", name, tried, error)
            if tried >= context.settings.catchup.max_attempts:
                raise error from found
            context.back_off(tried)
            continue
        context.failpoints.hit(CATCHUP_EXTENDED)
        _log.info("index extended [index=%s, version=%d, rows=%d]", name, version, index.unindexed_rows)
        return Extension(tried, index.unindexed_rows)


def _extend_once(context: JobContext, sharing: Sharing | None, survey: CatchupSurvey, index: IndexPlan) -> int:
    """Extend an index, then check that its model is unchanged and that no row of the version read is missing."""
    table, read = context.base, survey.version
    before = model_of(table, read, index)
    together = extend_on_executors(context, sharing, read, [index])
    if together is None:
        version = extend_index(table, index.name, read_version=read, segments_to_merge=index.segments_to_merge)
    else:
        version = together.version
    require_extended(table, index, before, read, version)
    return version


def model_of(table: BaseTable, version: int, index: IndexPlan) -> str:
    """Return a digest of what an extension must not change; empty for an index that gets its first model now."""
    return vector_model_digest(table, version, index.name) if index.is_vector and index.is_trained else ""


def require_extended(table: BaseTable, index: IndexPlan, before: str, read: int, version: int) -> None:
    """Return if a version has an index with the same model and with all rows of the version read.

    Raises:
        CorruptionError: The index must not be trusted any longer.
    """
    if before and vector_model_digest(table, version, index.name) != before:
        raise CorruptionError(
            "extending a vector index changed its centroids or its quantizer",
            remedy="stop catch-up, because distances in MemTables and base table no longer compare; create the index "
            "under another name and rebuild the MemTables' indexes from it",
            index=index.name,
            version_before=read,
            version_after=version,
        )
    _require_covered(table, index.name, read, version)


def _require_covered(table: BaseTable, name: str, read: int, version: int) -> None:
    """Check that an index covers the whole version it was extended from; otherwise its recorded catch-up is wrong."""
    old, new = read_coverage(table, read), read_coverage(table, version)
    index = new.named(name)
    missing = sorted(old.fragments.intersection(index.unindexed_fragments if index is not None else new.fragments))
    if missing:
        raise CorruptionError(
            "an index lacks rows that its extension should have added",
            remedy="stop garbage collection of this table; drop the index and create it again",
            table=table.uri,
            index=name,
            version=version,
            fragments=missing,
        )


RETRYABLE = (ConflictError, CommitUnknownError, UnavailableError)
"""Failures that a later run may not meet."""
