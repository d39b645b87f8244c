"""Deciding what to check: pure functions of what was read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memwal_core.base_table import IndexFacts
from memwal_core.ids import RegionId
from memwal_core.maintenance.merge.plan import MergeSurvey, SurveyedGeneration
from memwal_core.quality.model import Stage

_SCALAR_KINDS = frozenset({"BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"})
_VECTOR_PREFIX = "IVF"


@dataclass(frozen=True, slots=True)
class Audit:
    """One flushed MemTable to look at.

    Attributes:
        region_id: Its region.
        generation: What the merge's survey knows of it.
    """

    region_id: RegionId
    generation: SurveyedGeneration

    @property
    def subject(self) -> str:
        """The flushed MemTable as people name it."""
        return f"region {self.region_id} generation {self.generation.generation}"


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """One retained version of the base table.

    Attributes:
        version: Its number.
        rows: Live rows.
        merged: Region -> merge progress.
    """

    version: int
    rows: int
    merged: Mapping[RegionId, int]


@dataclass(frozen=True, slots=True)
class MergeWindow:
    """Two versions with a merge in between.

    Attributes:
        before: The last version without the merge.
        after: The version to prove.
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
    """An index whose answers are compared with a scan.

    Attributes:
        name: The index.
        column: The column it covers.
        is_vector: Whether it finds nearest neighbours instead of equal values.
    """

    name: str
    column: str
    is_vector: bool


@dataclass(frozen=True, slots=True)
class QualityPlan:
    """What one stage checks.

    Attributes:
        table_uri: The base table.
        stage: Which checks.
        version: Base version to look at.
        audits: Flushed MemTables to audit, before a merge.
        passed_by_people: Flushed MemTables that a person let pass, so that they are not audited.
        window: The last merge, to recount; None if no two retained versions show it.
        indexes: Indexes to question.
        unquestioned: Index -> why it is not questioned.
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
    """Choose the flushed MemTables to audit: all that wait for a merge, but those that people let pass.

    Args:
        survey: What a merge would see.
        released: (region, generation) that people let pass.
    """
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
    """Choose what to recount and which indexes to question.

    Args:
        table_uri: The base table.
        versions: Retained versions, ascending; the last is the newest.
        indexes: Of the newest version.
        columns: Field id -> top-level column.
        since: Recount everything merged after this version; only the last merge if None.
    """
    chosen, unquestioned = [], {}
    for index in indexes:
        if index.name.startswith("__"):
            continue
        column = columns.get(index.field_ids[0]) if len(index.field_ids) == 1 else None
        kind = index.kind.upper()
        if column is None or not (kind in _SCALAR_KINDS or kind.startswith(_VECTOR_PREFIX)):
            unquestioned[index.name] = f"no scan gives the answer of an index of kind {index.kind}"
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
    """Find the newest merge among retained versions.

    Args:
        versions: Ascending.
        since: Take everything merged after this version instead.

    Returns:
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
