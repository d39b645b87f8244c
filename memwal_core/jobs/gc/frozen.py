"""States in which nothing is collected, because the facts of one moment contradict each other. Pure.

What contradicts an earlier moment freezes the table for every job (``memwal_core.coordination.freeze``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memwal_core.ids import RegionId
from memwal_core.jobs.gc.items import Gate, Item, Kind
from memwal_core.jobs.gc.state import BaseState, GcRegionState, GcState


def table_freeze(state: GcState) -> str:
    """Return why nothing of a table may be collected; empty if something may."""
    base = state.base
    if base.problem:
        return base.problem
    if base.details is None and state.regions:
        return (
            f"version {base.version} has no MemWAL index but regions exist: an overwrite or restore dropped the merge "
            "progress"
        )
    legacy = next((each for each in base.retained if each.legacy), None)
    if legacy is not None:
        return f"{legacy.label} has a MemWAL index of an early release, whose progress cannot be read"
    return ""


def region_freeze(region: GcRegionState, base: BaseState) -> str:
    """Return why nothing of a region may be collected; empty if something may."""
    if region.problem:
        return region.problem
    for find in (_mixed_codecs, _progress_ahead, _generation_hole, _missing_directory):
        problem = find(region, base)
        if problem:
            return problem
    return ""


def _mixed_codecs(region: GcRegionState, base: BaseState) -> str:  # noqa: ARG001 - one signature for all
    if len(region.wal_suffixes) < 2:
        return ""
    return f"its WAL has entries of two codecs: {', '.join(sorted(region.wal_suffixes))}"


def _progress_ahead(region: GcRegionState, base: BaseState) -> str:
    merged = base.merged(region.region_id)
    if region.manifest is None or merged < region.manifest.current_generation:
        return ""
    return (
        f"generation {merged} counts as merged, but manifest version {region.manifest.version} says that "
        f"generation {region.manifest.current_generation} is not flushed yet"
    )


def _generation_hole(region: GcRegionState, base: BaseState) -> str:
    if region.manifest is None:
        return ""
    merged = base.merged(region.region_id)
    recorded = {each.generation for each in region.manifest.flushed_generations}
    current = region.manifest.current_generation
    missing = next((number for number in range(merged + 1, current) if number not in recorded), None)
    if missing is None:
        return ""
    return f"generation {missing} is neither merged (progress {merged}) nor recorded (current generation {current})"


def _missing_directory(region: GcRegionState, base: BaseState) -> str:
    if region.manifest is None:
        return ""
    present = {each.name for each in region.directories}
    for each in region.manifest.flushed_generations:
        if each.generation > base.merged(region.region_id) and each.path not in present:
            return f"generation {each.generation} is not merged and its directory {each.path} is missing"
    return ""


def _is_damage(region: GcRegionState, base: BaseState, reasons: Mapping[RegionId, str]) -> bool:
    reason = reasons.get(region.region_id)
    return reason is not None and (region.is_damaged or reason == _missing_directory(region, base))


@dataclass(frozen=True, slots=True)
class Freezes:
    """What is frozen, and why.

    Attributes:
        table: Why nothing of the table may be collected; empty if something may.
        regions: Region -> why nothing of it may be collected.
        damaged: Those of them whose files are lost or damaged, which concerns no other region.
    """

    table: str
    regions: Mapping[RegionId, str]
    damaged: frozenset[RegionId] = frozenset()

    @classmethod
    def of(cls, state: GcState) -> Freezes:
        """Find all freezes of a state."""
        found = {region.region_id: region_freeze(region, state.base) for region in state.regions}
        reasons = {region_id: reason for region_id, reason in found.items() if reason}
        damaged = {each.region_id for each in state.regions if _is_damage(each, state.base, reasons)}
        return cls(table_freeze(state), reasons, frozenset(damaged))

    @property
    def need_person(self) -> bool:
        """Whether facts contradict each other, which is more than damage to some regions."""
        return bool(self.table or self.regions.keys() - self.damaged)

    def __bool__(self) -> bool:
        return bool(self.table or self.regions)

    def laid_over(self, items: Iterable[Item]) -> list[Item]:
        """Return the items with everything frozen kept."""
        return [self._kept(item) for item in items]

    def _kept(self, item: Item) -> Item:
        reason = self.table or ("" if item.region_id is None else self.regions.get(item.region_id, ""))
        return item.kept(Gate.FROZEN, reason) if reason and item.kind is not Kind.UNKNOWN else item
