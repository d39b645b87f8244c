"""Deciding what to check: pure functions of what was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memwal_core.base_table import IndexFacts
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.plan import MergeSurvey, SurveyedGeneration
from memwal_core.quality.model import Stage

_SCALAR_KINDS = frozenset({"BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"})
_VECTOR_PREFIX = "IVF"


@dataclass(frozen=True, slots=True)
class Audit:
    """One flushed MemTable to audit, as the merge's survey found it."""

    region_id: RegionId
    generation: SurveyedGeneration

    @property
    def subject(self) -> str:
        """The flushed MemTable's name in reports."""
        return f"region {self.region_id} generation {self.generation.generation}"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """Live rows and merge progress of one retained version of the base table."""

    version: int
    rows: int
    merged: Mapping[RegionId, int]


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """Two versions with a merge in between.

    Attributes:
        before: The last version without the merge.
        after: The version to verify.
        later: The versions from ``after`` on, in which nothing was merged.
    """

    before: VersionFacts
    after: VersionFacts
    later: tuple[VersionFacts, ...]

    @property
    def spans(self) -> Mapping[RegionId, tuple[int, int]]:
        """Region -> progress before and after, where it moved."""
        return {
            region_id: (self.before.merged.get(region_id, 0), through)
            for region_id, through in self.after.merged.items()
            if through > self.before.merged.get(region_id, 0)
        }


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """An index whose answers are compared with a scan: nearest neighbours if ``is_vector``, else equal values."""

    name: str
    column: str
    is_vector: bool


@dataclass(frozen=True, slots=True)
class QualityPlan:
    """What one stage checks.

    Attributes:
        audits: Flushed MemTables to audit, before a merge.
        passed_by_people: Flushed MemTables that a person released, so that they are not audited.
        window: The last merge, to recount; None if no two retained versions show it.
        unquestioned: Index -> why it is not queried.
    """

    table_uri: str
    stage: Stage
    version: int
    audits: tuple[Audit, ...] = ()
    passed_by_people: tuple[Audit, ...] = ()
    window: MergeWindow | None = None
    indexes: tuple[IndexCheck, ...] = ()
    unquestioned: Mapping[str, str] | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the plan as JSON-able values."""
        return {
            "table_uri": self.table_uri,
            "stage": self.stage.value,
            "version": self.version,
            "audits": [audit.subject for audit in self.audits],
            "passed_by_people": [audit.subject for audit in self.passed_by_people],
            "window": None if self.window is None else [self.window.before.version, self.window.after.version],
            "indexes": [index.name for index in self.indexes],
            "unquestioned": dict(self.unquestioned or {}),
        }


def plan_before(survey: MergeSurvey, released: Collection[tuple[RegionId, int]]) -> QualityPlan:
    """Choose the flushed MemTables to audit: all that wait for a merge, except those that a person released."""
    waiting = [
        Audit(region.region_id, generation)
        for region in sorted(survey.regions, key=lambda each: each.region_id)
        for generation in sorted(region.generations, key=lambda each: each.generation)
    ]
    passed = frozenset(released)
    is_passed = [(audit.region_id, audit.generation.generation) in passed for audit in waiting]
    return QualityPlan(
        table_uri=survey.table_uri,
        stage=Stage.BEFORE,
        version=survey.version,
        audits=tuple(audit for audit, passes in zip(waiting, is_passed, strict=True) if not passes),
        passed_by_people=tuple(audit for audit, passes in zip(waiting, is_passed, strict=True) if passes),
    )


def plan_after(
    table_uri: str,
    versions: Sequence[VersionFacts],
    indexes: Sequence[IndexFacts],
    columns: Mapping[int, str],
    since: int | None = None,
) -> QualityPlan:
    """Choose what to recount and which indexes to query.

    ``versions`` ascend and end with the newest. Everything merged after version ``since`` is recounted, or only the
    last merge if it is None.
    """
    chosen, unquestioned = [], {}
    for index in indexes:
        if index.name.startswith("__"):
            continue
        column = columns.get(index.field_ids[0]) if len(index.field_ids) == 1 else None
        kind = index.kind.upper()
        if column is None or not (kind in _SCALAR_KINDS or kind.startswith(_VECTOR_PREFIX)):
            unquestioned[index.name] = f"a scan cannot verify an index of kind {index.kind}"
        else:
            chosen.append(IndexCheck(index.name, column, kind.startswith(_VECTOR_PREFIX)))
    return QualityPlan(
        table_uri=table_uri,
        stage=Stage.AFTER,
        version=versions[-1].version,
        window=find_window(versions, since),
        indexes=tuple(chosen),
        unquestioned=unquestioned,
    )


def find_window(versions: Sequence[VersionFacts], since: int | None = None) -> MergeWindow | None:
    """Find the newest merge among retained versions, ascending, or everything merged after version ``since``.

    None if no retained version is older than the merge.
    """
    newest = versions[-1]
    later = [newest]
    for version in reversed(versions[:-1]):
        if dict(version.merged) != dict(newest.merged):
            older = [each for each in versions if since is not None and each.version == since]
            return MergeWindow(older[0] if older else version, later[-1], tuple(reversed(later)))
        later.append(version)
    return None


def row_changes(window: MergeWindow) -> list[tuple[int, int, int]]:
    """Return (version, rows before it, rows) of the versions since a merge, to compare; none without a later version.

    If the newest version has the rows of the merge again, because somebody restored it, only that is left to compare:
    what was wrong in between is over.
    """
    first, newest = window.later[0], window.later[-1]
    if newest.version == first.version:
        return []
    if newest.rows == first.rows:
        return [(newest.version, first.rows, newest.rows)]
    return [(after.version, before.rows, after.rows) for before, after in pairwise(window.later)]
