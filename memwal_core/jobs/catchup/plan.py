"""Decide what each base table index needs: a pure function of a survey and the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.base_table import IndexCoverage
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.settings import CatchupSettings


class CatchupVerdict(StrEnum):
    """Where an index stands."""

    BEHIND = "behind: rows are not indexed"
    UNRECORDED = "behind: covers everything, which is not recorded"
    SEGMENTS = "covers everything in several segments"
    CAUGHT_UP = "caught up"
    NOTHING_MERGED = "nothing is merged yet"
    EMPTY_TABLE = "an empty table proves nothing"
    UNTRAINED = "not trained: the table has too few vectors, queries scan them"
    MISSING = "blocked: maintained but not there"
    NOT_SELECTED = "not selected"

    @property
    def extends(self) -> bool:
        """Whether the index is extended."""
        return self in {CatchupVerdict.BEHIND, CatchupVerdict.SEGMENTS}

    @property
    def needs_human(self) -> bool:
        """Whether no later run can do better until a person acts."""
        return self is CatchupVerdict.MISSING


@dataclass(frozen=True, slots=True)
class CatchupSurvey:
    """Indexes and progress of one table version.

    Attributes:
        merged: Region -> merged generation.
        recorded: Index -> region -> generation that is recorded as covered.
        outdated: Indexes all segments of which must become one with the new rows, see ``outdated_indexes``.
    """

    table_uri: str
    version: int
    merged: Mapping[RegionId, int]
    recorded: Mapping[str, Mapping[RegionId, int]]
    maintained: tuple[str, ...]
    fragments: int
    indexes: tuple[IndexCoverage, ...]
    outdated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """What one index needs.

    Attributes:
        kind: Lance's name of its type; empty if the index does not exist.
        is_vector: Whether it has centroids, which must not change.
        segments_to_merge: How many segments an extension merges with the new rows.
        is_trained: Whether it has a model, which an extension must not change.
        vectors_missing: Vectors that the table lacks before the index can be trained.
        regions_behind: Regions whose recorded catch-up is below merge progress.
        lag: The largest such difference, in generations.
    """

    name: str
    kind: str
    is_vector: bool
    verdict: CatchupVerdict
    unindexed_fragments: int = 0
    unindexed_rows: int = 0
    segments: int = 0
    segments_to_merge: int = 0
    is_trained: bool = True
    vectors_missing: int = 0
    regions_behind: int = 0
    lag: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "index": self.name,
            "kind": self.kind,
            "verdict": self.verdict.value,
            "unindexed_fragments": self.unindexed_fragments,
            "unindexed_rows": self.unindexed_rows,
            "segments": self.segments,
            "segments_to_merge": self.segments_to_merge,
            "is_trained": self.is_trained,
            "vectors_missing": self.vectors_missing,
            "regions_behind": self.regions_behind,
            "lag": self.lag,
        }


@dataclass(frozen=True, slots=True)
class CatchupPlan:
    """What a run does; ``indexes`` are ordered by name."""

    table_uri: str
    version: int
    indexes: tuple[IndexPlan, ...]

    @property
    def to_extend(self) -> tuple[IndexPlan, ...]:
        """Indexes that need new rows or fewer segments."""
        return tuple(index for index in self.indexes if index.verdict.extends)

    @property
    def to_record(self) -> tuple[str, ...]:
        """Indexes that cover everything although the record does not say so."""
        return tuple(index.name for index in self.indexes if index.verdict is CatchupVerdict.UNRECORDED)

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.to_extend or self.to_record)

    def named(self, name: str) -> IndexPlan | None:
        """Return the plan of one index, or None if the index is gone."""
        return next((index for index in self.indexes if index.name == name), None)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"version": self.version, "indexes": [index.to_dict() for index in self.indexes]}


def plan_catchup(
    survey: CatchupSurvey,
    settings: CatchupSettings,
    *,
    indexes: Collection[str] | None = None,
    merge_segments: bool = False,
) -> CatchupPlan:
    """Decide what each index needs; ``indexes`` None means all.

    Every index of the table counts, not only those that MemTables maintain: a flushed MemTable may be deleted
    only when no index that a query can use still needs it. ``merge_segments`` makes one segment of each index
    whatever its number, as compaction needs it: Lance rewrites fragments together only if the same segments
    cover them.
    """
    known = {index.name for index in survey.indexes}
    unknown = sorted(set(indexes or ()) - known - set(survey.maintained))
    if unknown:
        raise InvalidRequestError(
            "the table has no such index",
            remedy="correct the name",
            table=survey.table_uri,
            unknown=unknown,
            known=sorted(known),
        )
    plans = [
        _not_selected(index)
        if indexes is not None and index.name not in indexes
        else _plan_index(index, survey, settings, merge_segments=merge_segments)
        for index in survey.indexes
    ]
    plans += [
        IndexPlan(name, "", is_vector=False, verdict=CatchupVerdict.MISSING)
        for name in survey.maintained
        if name not in known and (indexes is None or name in indexes)
    ]
    return CatchupPlan(survey.table_uri, survey.version, tuple(sorted(plans, key=lambda plan: plan.name)))


def _not_selected(index: IndexCoverage) -> IndexPlan:
    return IndexPlan(index.name, index.kind, index.is_vector, CatchupVerdict.NOT_SELECTED, segments=index.segments)


def _plan_index(
    index: IndexCoverage, survey: CatchupSurvey, settings: CatchupSettings, *, merge_segments: bool
) -> IndexPlan:
    recorded = survey.recorded.get(index.name, {})
    lags = [merged - recorded.get(region, 0) for region, merged in survey.merged.items()]
    # An index that cannot be trained holds nothing back: no query uses it.
    behind = [] if index.vectors_missing else [lag for lag in lags if lag > 0]
    too_many = index.segments + 1 > settings.max_segments
    in_one = merge_segments or too_many or index.name in survey.outdated or not index.takes_segments
    return IndexPlan(
        name=index.name,
        kind=index.kind,
        is_vector=index.is_vector,
        verdict=_verdict(index, survey, is_behind=bool(behind), merge_segments=merge_segments),
        unindexed_fragments=len(index.unindexed_fragments),
        unindexed_rows=index.unindexed_rows,
        segments=index.segments,
        segments_to_merge=index.segments if index.is_trained and in_one else 0,
        is_trained=index.is_trained,
        vectors_missing=index.vectors_missing,
        regions_behind=len(behind),
        lag=max(behind, default=0),
    )


def _verdict(index: IndexCoverage, survey: CatchupSurvey, *, is_behind: bool, merge_segments: bool) -> CatchupVerdict:
    if is_behind and not survey.fragments:
        # Every index covers an empty table, so coverage proves nothing.
        return CatchupVerdict.EMPTY_TABLE
    if index.vectors_missing:
        # An extension would commit without training anything.
        return CatchupVerdict.UNTRAINED
    if index.unindexed_fragments:
        return CatchupVerdict.BEHIND
    if merge_segments and index.segments > 1:
        return CatchupVerdict.SEGMENTS
    if is_behind:
        return CatchupVerdict.UNRECORDED
    return CatchupVerdict.CAUGHT_UP if survey.merged else CatchupVerdict.NOTHING_MERGED
