"""Extend one index and prove that only the new rows changed it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import lance

from memwal_core.base_table import BaseTable, extend_index, read_coverage, vector_model_digest
from memwal_core.base_table.indexes.segments import SegmentBuild, build_segment, publish_segments, segment_build
from memwal_core.clock import Clock
from memwal_core.errors import CommitUnknownError, ConflictError, CorruptionError, UnavailableError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.jobs.catchup.plan import CatchupPlan, CatchupSurvey, IndexPlan
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.rng import Rng
from memwal_core.settings import CatchupSettings

_log = logging.getLogger(__name__)

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0

CATCHUP_SURVEYED = Failpoint("catchup.surveyed")
CATCHUP_EXTENDED = Failpoint("catchup.extended")


@dataclass(frozen=True, slots=True)
class CatchupContext:
    """What a catch-up works with.

    Attributes:
        check_lease: Called before each write.
        failpoints: Hit at the places of a catch-up, and of a compaction around it.
        sharing: Divides the building of segments between executors; None: this process extends.
    """

    table: BaseTable
    settings: CatchupSettings
    clock: Clock
    rng: Rng
    check_lease: CheckLease = no_lease
    failpoints: Failpoints = NO_FAILPOINTS
    sharing: Sharing | None = None

    def back_off(self, attempt: int) -> None:
        """Wait after a lost attempt; the wait grows and spreads with each one."""
        self.clock.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * self.rng.random())


@dataclass(frozen=True, slots=True)
class Extension:
    """The end of an extension.

    ``attempts`` counts the successful try, ``rows_indexed`` the rows that were unindexed before.
    """

    attempts: int
    rows_indexed: int


def extend(context: CatchupContext, name: str, look: Callable[[], tuple[CatchupSurvey, CatchupPlan]]) -> Extension:
    """Extend an index over the newest version, again after each conflict; zero attempts if nothing was left to do.

    Lance records catch-up in the same commit, with the merge progress of the version that the extension read,
    so it does not credit a merge that lands meanwhile. A ``CorruptionError`` means that the index must not be
    trusted any longer.
    """
    tried = 0
    while True:
        survey, plan = look()
        index = plan.named(name)
        if index is None or not index.verdict.extends:
            return Extension(tried, 0)
        context.failpoints.hit(CATCHUP_SURVEYED)
        context.check_lease()
        tried += 1
        try:
            version = _extend_once(context, survey, index)
        except (ConflictError, CommitUnknownError) as error:
            _log.info("index not extended, retrying [index=%s, attempt=%d, error=%s]", name, tried, error)
            if tried >= context.settings.max_attempts:
                raise
            context.back_off(tried)
            continue
        context.failpoints.hit(CATCHUP_EXTENDED)
        _log.info("index extended [index=%s, version=%d, rows=%d]", name, version, index.unindexed_rows)
        return Extension(tried, index.unindexed_rows)


def _extend_once(context: CatchupContext, survey: CatchupSurvey, index: IndexPlan) -> int:
    """Extend an index, then check that its model is unchanged and that no row of the version read is missing."""
    table, read = context.table, survey.version
    # An index without a model gets its first one now.
    has_model = index.is_vector and index.is_trained
    before = vector_model_digest(table, read, index.name) if has_model else ""
    version = _extend_elsewhere(context, read, index)
    if version is None:
        version = extend_index(table, index.name, read_version=read, segments_to_merge=index.segments_to_merge)
    if has_model and vector_model_digest(table, version, index.name) != before:
        raise CorruptionError(
            "extending a vector index changed its centroids or its quantizer",
            remedy="stop catch-up, because distances in MemTables and base table no longer compare; create the index "
            "under another name and rebuild the MemTables' indexes from it",
            index=index.name,
            version_before=read,
            version_after=version,
        )
    _require_covered(table, index.name, read, version)
    return version


def _extend_elsewhere(context: CatchupContext, read: int, index: IndexPlan) -> int | None:
    """Let executors build segments over the unindexed fragments; None if this process has to extend the index.

    Joining all segments, the first training, and kinds whose model cannot be handed on are Lance's own.
    """
    sharing, table = context.sharing, context.table
    if sharing is None or not sharing.on_executors or index.segments_to_merge or not index.is_trained:
        return None
    coverage = read_coverage(table, read).named(index.name)
    build = segment_build(table, read, index.name, index.kind)
    if build is None or coverage is None or not coverage.unindexed_fragments:
        return None
    # Each share makes a segment, which takes its time to begin, and which this process has to join.
    shares = [SegmentShare(build, each) for each in sharing.divide(coverage.unindexed_fragments, per_slot=1)]
    segments = sharing.run(f"build {index.name}", build_share, shares)
    built = [each for each in segments if each is not None]
    if len(built) < len(segments):
        return None
    context.check_lease()
    return publish_segments(table, build, built)


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """Some fragments to index."""

    build: SegmentBuild
    fragments: tuple[int, ...]


def build_share(context: JobContext, share: SegmentShare) -> lance.Index | None:
    """Build one segment."""
    return build_segment(context.base, share.build, share.fragments)


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
