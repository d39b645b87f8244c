"""Extend indexes by segments that executors build, all in one stage, published in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance

from memwal_core.base_table import BaseTable, TableCoverage, read_coverage
from memwal_core.base_table.indexes.segments import (
    SegmentBuild,
    build_segment,
    join_segments,
    publish_segments,
    segment_build,
)
from memwal_core.base_table.indexes.text_index import TEXT_KIND
from memwal_core.jobs.catchup.plan import IndexPlan
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.sharing.sharing import Sharing


@dataclass(frozen=True, slots=True)
class ExtendedTogether:
    """The version that has new segments, and the indexes that got one."""

    version: int
    indexes: tuple[IndexPlan, ...]


@dataclass(frozen=True, slots=True)
class SegmentShare:
    """Some fragments to index."""

    build: SegmentBuild
    fragments: tuple[int, ...]


def extend_on_executors(
    context: JobContext, sharing: Sharing | None, read: int, indexes: Sequence[IndexPlan]
) -> ExtendedTogether | None:
    """Let executors build segments over the unindexed fragments of a version; None if there is no index for them.

    Joining all segments, the first training, and kinds whose model cannot be handed on are Lance's own, and so is a
    segment over rows that have no value.

    Raises:
        ConflictError: Another commit came first. Build again.
        CommitUnknownError: Read the table before trying again.
    """
    table = context.base
    if sharing is None or not sharing.on_executors:
        return None
    builds = [(index, build) for index in indexes if (build := _build_of(table, read, index)) is not None]
    if not builds:
        return None
    coverage = read_coverage(table, read)
    # Each share makes a segment, which takes its time to begin, and which this process has to join.
    shares = {
        index.name: [SegmentShare(build, part) for part in sharing.divide(_unindexed(coverage, index), per_slot=1)]
        # Texts first: their segments take longest to join.
        for index, build in sorted(builds, key=lambda each: each[1].recipe.kind != TEXT_KIND)
    }
    shares = {name: each for name, each in shares.items() if each}
    if not shares:
        return None
    stages = {f"build {name}": each for name, each in shares.items()}
    joined = sharing.run_groups(build_share, stages, lambda stage, built: _joined(table, stages[stage], built))
    whole = {name: segment for name, segment in zip(shares, joined, strict=True) if segment is not None}
    if not whole:
        return None
    context.guard()
    version = publish_segments(table, read, whole)
    return ExtendedTogether(version, tuple(index for index in indexes if index.name in whole))


def _joined(
    table: BaseTable, shares: Sequence[SegmentShare], built: Sequence[lance.Index | None]
) -> lance.Index | None:
    """Make one segment of those of one index, while executors build those of others."""
    segments = [each for each in built if each is not None]
    return join_segments(table, shares[0].build, segments) if len(segments) == len(built) else None


def build_share(context: JobContext, share: SegmentShare) -> lance.Index | None:
    """Build one segment."""
    return build_segment(context.base, share.build, share.fragments)


def _build_of(table: BaseTable, read: int, index: IndexPlan) -> SegmentBuild | None:
    if index.segments_to_merge or not index.is_trained:
        return None
    return segment_build(table, read, index.name, index.kind)


def _unindexed(coverage: TableCoverage, index: IndexPlan) -> tuple[int, ...]:
    found = coverage.named(index.name)
    return tuple(found.unindexed_fragments) if found is not None else ()
