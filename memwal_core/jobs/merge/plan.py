"""Decide what the next merge commit takes on: a pure function of a survey and the settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.decide.strategy import PassSize, StrategyChoice, choose_strategy, place_here
from memwal_core.jobs.sharing.place import Workplace, place_facts
from memwal_core.region.audited import Audited
from memwal_core.settings import MergeSettings


class Verdict(StrEnum):
    """Why a region's share of a plan ends where it ends."""

    COMPLETE = "complete"
    NOTHING_TO_MERGE = "nothing to merge"
    NEXT_PASS = "bounded: next pass"  # noqa: S105 - not a password
    NEXT_RUN = "flushed meanwhile: next run"
    UNAUDITED = "not audited: next audit"
    NOT_SELECTED = "not selected"
    HOLE = "blocked: hole"
    MISSING = "blocked: missing generation"
    AHEAD = "blocked: progress ahead of the region"
    PARKED = "parked: schema"
    QUARANTINED = "quarantined: quality"
    DAMAGED = "parked: damaged file"

    @property
    def needs_human(self) -> bool:
        """Whether no later pass can do better until a person acts."""
        return self in _NEED_HUMAN

    @property
    def is_damage(self) -> bool:
        """Whether files of the region are lost or damaged, which concerns no other region."""
        return self in {Verdict.MISSING, Verdict.DAMAGED}


_NEED_HUMAN = frozenset(
    {Verdict.HOLE, Verdict.MISSING, Verdict.AHEAD, Verdict.PARKED, Verdict.QUARANTINED, Verdict.DAMAGED}
)


class Defect(StrEnum):
    """Why a recorded generation cannot be read."""

    MISSING = "missing"
    SCHEMA = "schema"
    DAMAGED = "damaged"

    @property
    def verdict(self) -> Verdict:
        """The verdict on a region whose next generation has this defect."""
        return {Defect.MISSING: Verdict.MISSING, Defect.SCHEMA: Verdict.PARKED}.get(self, Verdict.DAMAGED)


@dataclass(frozen=True, slots=True)
class SurveyedGeneration:
    """One recorded flushed MemTable above the merge progress.

    Attributes:
        uri: Where its dataset is, as pylance opens it.
        size_bytes: Arrow size as the writer accounted it, else as measured from its files.
        rows: Physical rows, older duplicates of a key included.
        defect: What is wrong with it; None if it can be merged.
        evidence: The facts behind ``defect``.
        missing: Base columns that it lacks because they were added after the flush.
    """

    generation: int
    uri: str
    size_bytes: int
    rows: int
    defect: Defect | None = None
    evidence: str = ""
    tombstones: int = 0
    missing: tuple[str, ...] = ()

    @property
    def directory(self) -> str:
        """Name of its directory; no other flushed MemTable of the region ever has it."""
        return self.uri.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class SurveyedRegion:
    """One region, according to its manifest and the base table.

    Attributes:
        current_generation: Oldest generation that is not flushed.
        merged: Merge progress of the base version; 0 if nothing is merged.
        generations: Recorded generations above ``merged``, in any order.
        quarantined: Quarantined generation -> why its audit holds it back.
        damage: Why nothing of the region can be read; empty if its manifest can.
    """

    region_id: RegionId
    manifest_version: int
    current_generation: int
    merged: int
    generations: tuple[SurveyedGeneration, ...]
    quarantined: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    damage: str = ""


@dataclass(frozen=True, slots=True)
class MergeSurvey:
    """State of a table as one merge pass sees it: manifests read first, then the base version.

    Attributes:
        has_key: Whether the table has a primary key; without one rows are appended.
        join_obstacle: Why Lance cannot join its columns; empty if it can.
    """

    table_uri: str
    version: int
    regions: tuple[SurveyedRegion, ...]
    has_key: bool = True
    join_obstacle: str = ""


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """One region's share of a commit.

    Attributes:
        merged: Progress before the commit; the commit is valid only from there.
        take: Generations to merge, ascending from ``merged + 1`` without holes; may be empty.
        waiting: Recorded generations that it leaves, whatever keeps them.
        stuck: How many of those no later pass takes: they wait for a person, or for an audit.
    """

    region_id: RegionId
    merged: int
    take: tuple[SurveyedGeneration, ...]
    waiting: int
    waiting_bytes: int
    verdict: Verdict
    evidence: str = ""
    stuck: int = 0
    stuck_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """Arrow bytes taken on."""
        return sum(each.size_bytes for each in self.take)

    @property
    def mergeable(self) -> int:
        """Generations that this pass and later ones take."""
        return len(self.take) + self.waiting - self.stuck

    @property
    def mergeable_bytes(self) -> int:
        """Their Arrow bytes."""
        return self.size_bytes + self.waiting_bytes - self.stuck_bytes

    @property
    def rows(self) -> int:
        """Physical rows taken on."""
        return sum(each.rows for each in self.take)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "merged": self.merged,
            "take": [
                {
                    "generation": each.generation,
                    "uri": each.uri,
                    "bytes": each.size_bytes,
                    "rows": each.rows,
                    "tombstones": each.tombstones,
                    "missing": list(each.missing),
                }
                for each in self.take
            ],
            "waiting": self.waiting,
            "waiting_bytes": self.waiting_bytes,
            "verdict": self.verdict.value,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What one pass merges, and why it leaves the rest; ``regions`` has one entry per region, ordered by id."""

    table_uri: str
    version: int
    regions: tuple[RegionPlan, ...]
    place: Workplace
    strategy: StrategyChoice

    @property
    def marks(self) -> Mapping[RegionId, int]:
        """Region -> progress after the pass, for regions that take part."""
        return {each.region_id: each.take[-1].generation for each in self.regions if each.take}

    @property
    def size_bytes(self) -> int:
        """Arrow bytes taken on."""
        return sum(region.size_bytes for region in self.regions)

    @property
    def tombstones(self) -> int:
        """Rows taken on that delete their key."""
        return sum(taken.tombstones for region in self.regions for taken in region.take)

    @property
    def generations(self) -> int:
        """Generations taken on."""
        return sum(len(region.take) for region in self.regions)

    @property
    def stuck(self) -> tuple[RegionPlan, ...]:
        """Regions that end at something that only a person can resolve."""
        return tuple(region for region in self.regions if region.verdict.needs_human)

    @property
    def parked(self) -> Mapping[RegionId, str]:
        """Regions with lost or damaged files, and the evidence."""
        return {each.region_id: each.evidence for each in self.regions if each.verdict.is_damage}

    @property
    def lost_all(self) -> bool:
        """Whether every region has lost or damaged files at the place where its merge would go on."""
        return bool(self.regions) and len(self.parked) == len(self.regions) and not self.marks

    @property
    def holds_only(self) -> bool:
        """Whether all regions that are stuck wait for a person's word about a held flushed MemTable, or are damaged."""
        return bool(self.stuck) and all(
            region.verdict.is_damage or region.verdict is Verdict.QUARANTINED for region in self.stuck
        )

    @property
    def unaudited(self) -> tuple[RegionPlan, ...]:
        """Regions whose next generation no audit has seen, although the merge takes only what one saw."""
        return tuple(region for region in self.regions if region.verdict is Verdict.UNAUDITED)

    @property
    def contradicts_itself(self) -> bool:
        """Whether a region is stuck for another reason than damage."""
        return any(not region.verdict.is_damage for region in self.stuck)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "table_uri": self.table_uri,
            "version": self.version,
            "generations": self.generations,
            "bytes": self.size_bytes,
            "tombstones": self.tombstones,
            **place_facts(self.place),
            "strategy": self.strategy.to_dict(),
            "marks": {str(region): generation for region, generation in self.marks.items()},
            "regions": [region.to_dict() for region in self.regions],
        }


def plan_merge(
    survey: MergeSurvey,
    settings: MergeSettings,
    *,
    regions: Collection[RegionId] | None = None,
    until: Mapping[RegionId, int] | None = None,
    audited: Audited | None = None,
    place: Callable[[PassSize], Workplace] = place_here,
) -> MergePlan:
    """Choose the generations of the next commit.

    Each region contributes the generations that follow its progress without a hole. Within the bounds, regions
    take turns, the one that lags most first, so that one busy region cannot keep the others waiting. The first
    generation is taken whatever its size. A generation that lacks a column is taken alone, because what was
    merged before it supplies the missing values.

    Args:
        survey: The state to decide on.
        settings: ``max_bytes`` and ``max_generations`` bound the commit.
        regions: Only these regions; all by default.
        until: Region -> highest generation that this run takes on, 0 for regions not named; no bound by default.
        audited: Only flushed MemTables that this audit could read, or that a person released; any by default.
        place: Chooses where the commit is prepared.
    """
    _refuse_unknown(survey, regions)
    prospects = [
        _prospect(region, regions, None if until is None else until.get(region.region_id, 0), audited)
        for region in survey.regions
    ]
    taken = _share_out(prospects, settings)
    plans = [_region_plan(prospect, taken[prospect.region.region_id]) for prospect in prospects]
    tombstones = sum(generation.tombstones for plan in plans for generation in plan.take)
    size = PassSize(
        sum(plan.size_bytes for plan in plans),
        tombstones,
        lacks_columns=any(generation.missing for plan in plans for generation in plan.take),
        has_key=survey.has_key,
        join_obstacle=survey.join_obstacle,
    )
    where = place(size)
    return MergePlan(
        table_uri=survey.table_uri,
        version=survey.version,
        regions=tuple(sorted(plans, key=lambda plan: plan.region_id)),
        place=where,
        strategy=choose_strategy(size, settings, where),
    )


@dataclass(frozen=True, slots=True)
class _Prospect:
    """What a region could contribute without bounds, and what ends that."""

    region: SurveyedRegion
    ready: tuple[SurveyedGeneration, ...]
    end: Verdict
    evidence: str
    later: tuple[SurveyedGeneration, ...] = ()

    @property
    def lag(self) -> tuple[int, int]:
        return len(self.ready), sum(each.size_bytes for each in self.ready)

    @property
    def stuck(self) -> tuple[SurveyedGeneration, ...]:
        """Recorded generations from the place on that only a person or an audit can resolve."""
        ends = self.end.needs_human or self.end is Verdict.UNAUDITED
        through = self.region.merged + len(self.ready)
        return tuple(each for each in self.region.generations if ends and each.generation > through)


def _refuse_unknown(survey: MergeSurvey, regions: Collection[RegionId] | None) -> None:
    known = {region.region_id for region in survey.regions}
    unknown = sorted(str(region) for region in regions or () if region not in known)
    if unknown:
        raise InvalidRequestError(
            "the table has no such region", remedy="choose from `memwal status`", unknown=unknown, known=len(known)
        )


def _prospect(
    region: SurveyedRegion, selected: Collection[RegionId] | None, until: int | None, audited: Audited | None
) -> _Prospect:
    if selected is not None and region.region_id not in selected:
        return _Prospect(region, (), Verdict.NOT_SELECTED, "")
    if region.damage:
        return _Prospect(region, (), Verdict.DAMAGED, region.damage)
    if region.merged >= region.current_generation:
        evidence = (
            f"the base table says that generation {region.merged} is merged, but manifest version "
            f"{region.manifest_version} says that generation {region.current_generation} is not even flushed"
        )
        return _Prospect(region, (), Verdict.AHEAD, evidence)
    return _consecutive(region, until, audited)


def _consecutive(region: SurveyedRegion, until: int | None, audited: Audited | None) -> _Prospect:
    """Return the generations that follow the progress, up to the first that cannot be taken."""
    recorded = {each.generation: each for each in region.generations}
    ready: list[SurveyedGeneration] = []
    for number in range(region.merged + 1, region.current_generation):
        if until is not None and number > until:
            later = tuple(each for each in region.generations if each.generation >= number)
            evidence = f"generations {number} to {region.current_generation - 1} were flushed after this run began"
            return _Prospect(region, tuple(ready), Verdict.NEXT_RUN, evidence, later)
        generation = recorded.get(number)
        if generation is None:
            return _Prospect(region, tuple(ready), Verdict.HOLE, _hole_evidence(region, number))
        if generation.defect is not None:
            evidence = f"generation {number}: {generation.evidence}"
            return _Prospect(region, tuple(ready), generation.defect.verdict, evidence)
        if number in region.quarantined:
            return _Prospect(
                region, tuple(ready), Verdict.QUARANTINED, f"generation {number}: {region.quarantined[number]}"
            )
        if audited is not None and (gate := _at_the_gate(region, generation, audited)) is not None:
            return replace(gate, ready=tuple(ready))
        ready.append(generation)
    return _Prospect(region, tuple(ready), Verdict.COMPLETE if ready else Verdict.NOTHING_TO_MERGE, "")


def _at_the_gate(region: SurveyedRegion, generation: SurveyedGeneration, audited: Audited) -> _Prospect | None:
    """Return what ends a region at a generation that no audit let pass; None if one did, or a person."""
    number, directory = generation.generation, generation.directory
    if (region.region_id, number) in audited.released:
        return None
    if unreadable := audited.unreadable(region.region_id, directory):
        return _Prospect(region, (), Verdict.DAMAGED, f"generation {number}: the audit could not read it: {unreadable}")
    if audited.has_seen(region.region_id, directory):
        return None
    evidence = "no audit by these suites is recorded"
    if audited.at is not None:
        which = f"generations {number} to {region.current_generation - 1}"
        if number == region.current_generation - 1:
            which = f"generation {number}"
        evidence = f"the audit of {audited.at:%Y-%m-%d %H:%M:%S} UTC did not see {which}"
    return _Prospect(region, (), Verdict.UNAUDITED, evidence)


def _hole_evidence(region: SurveyedRegion, number: int) -> str:
    recorded = sorted(each.generation for each in region.generations)
    return (
        f"generation {number} is next after the merge progress {region.merged}, but manifest version "
        f"{region.manifest_version} records {recorded} and current generation {region.current_generation}"
    )


def _share_out(prospects: list[_Prospect], settings: MergeSettings) -> dict[RegionId, int]:
    """Return how many of its ready generations each region may take."""
    taken = {prospect.region.region_id: 0 for prospect in prospects}
    closed: set[RegionId] = set()
    used_bytes = used_generations = 0
    for region_id, generation in _in_turns(prospects, closed):
        if used_generations == settings.max_generations:
            break
        if used_generations and used_bytes + generation.size_bytes > settings.max_bytes:
            closed.add(region_id)
            continue
        if taken[region_id] and generation.missing:
            closed.add(region_id)
            continue
        if generation.missing:
            closed.add(region_id)
        used_bytes += generation.size_bytes
        used_generations += 1
        taken[region_id] += 1
    return taken


def _in_turns(
    prospects: list[_Prospect], closed: Collection[RegionId]
) -> Iterator[tuple[RegionId, SurveyedGeneration]]:
    """Yield one generation of each region per round, worst lag first; ``closed`` regions drop out."""
    order = sorted(prospects, key=lambda each: (each.lag, each.region.region_id), reverse=True)
    for turn in itertools.count():
        order = [each for each in order if turn < len(each.ready) and each.region.region_id not in closed]
        if not order:
            return
        for prospect in order:
            yield prospect.region.region_id, prospect.ready[turn]


def _region_plan(prospect: _Prospect, count: int) -> RegionPlan:
    bounded = count < len(prospect.ready)
    stuck = prospect.stuck
    rest = (*prospect.ready[count:], *prospect.later, *stuck)
    return RegionPlan(
        region_id=prospect.region.region_id,
        merged=prospect.region.merged,
        take=prospect.ready[:count],
        waiting=len(rest),
        waiting_bytes=sum(each.size_bytes for each in rest),
        verdict=Verdict.NEXT_PASS if bounded else prospect.end,
        evidence="" if bounded else prospect.evidence,
        stuck=len(stuck),
        stuck_bytes=sum(each.size_bytes for each in stuck),
    )
