"""Decide what a choice means for a frozen table: pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from memwal_core.coordination.freeze import Choice, Freeze, FreezeCause, MaintenanceRecord, Memory, Sighting
from memwal_core.coordination.freeze.comparison import FLUSHED, MERGED_BEFORE
from memwal_core.errors import InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.region import FIRST_GENERATION, RegionManifest
from memwal_core.region.census import Census
from memwal_core.region.holes import missing_generations

_Seen = TypeVar("_Seen")

_INDEX_CAUSES = {FreezeCause.INDEX_GONE, FreezeCause.INDEX_MADE_ANEW}
_PROGRESS_CAUSES = {*_INDEX_CAUSES, FreezeCause.PROGRESS_WENT_BACK}
_REGION_CAUSES = {FreezeCause.PROGRESS_AHEAD, FreezeCause.REGION_BEGAN_AGAIN}
_INDEX_COMMITS = {*_PROGRESS_CAUSES, *_REGION_CAUSES, FreezeCause.REGION_VANISHED}
_TABLE_CAUSES = {*_INDEX_COMMITS, FreezeCause.TABLE_WENT_BACK}


@dataclass(frozen=True, slots=True)
class RegionThaw:
    """What a choice does to the flushed MemTables of one region.

    Attributes:
        target: Its merge progress from then on.
        merges: Recorded generations that the next merges take on; none are known of a region that cannot be read.
        skips: Recorded generation -> its rows (None if unknown), of those that are not merged although progress does
            not say so yet. Of ``restore-progress`` they were merged before; of ``discard-generations`` they are lost
            where nothing else holds them.
    """

    region_id: RegionId
    merged: int
    target: int
    merges: tuple[int, ...]
    skips: Mapping[int, int | None]

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "merged": self.merged,
            "target": self.target,
            "merges": list(self.merges),
            "skips": {str(number): rows for number, rows in self.skips.items()},
        }


@dataclass(frozen=True, slots=True)
class ThawPlan:
    """What ending some freezes takes.

    Attributes:
        regions: What changes for regions; none if no flushed MemTable is concerned.
        given_up: Regions that vanished, and are forgotten with their progress.
        obstacles: Why it cannot be done; nothing is done then.
    """

    choice: Choice
    ends: tuple[Freeze, ...]
    stays: tuple[Freeze, ...]
    regions: tuple[RegionThaw, ...]
    obstacles: tuple[str, ...]
    given_up: tuple[RegionId, ...] = ()

    @property
    def progress(self) -> Mapping[RegionId, int]:
        """Region -> merge progress to record, where it is another one."""
        changed = {each.region_id: each.target for each in self.regions if each.target != each.merged}
        return {**changed, **dict.fromkeys(self.given_up, 0)}


def plan_thaw(
    record: MaintenanceRecord,
    seen: Sighting,
    census: Census,
    choice: Choice,
    cause: FreezeCause | None,
) -> ThawPlan:
    """Return what a choice does.

    Args:
        record: With the active freezes.
        seen: The table as it is now.
        census: Its regions. A choice holds for those that cannot be read, too: they may be mended later.
        choice: What was chosen.
        cause: End only the freezes of this cause; may be None if all active ones have the same.

    Raises:
        InvalidRequestError: There is no such freeze, several causes are active, none is named and not one alone
            offers the choice, or the choice does not fit the cause.
    """
    ends = _chosen(record.active, choice, cause)
    stays = tuple(each for each in record.active if each not in ends)
    regions, obstacles = [], list(_obstacles(ends, seen))
    manifests = {each.region_id: each for each in census.manifests}
    for region_id, freeze in _regions_of(ends, census.region_ids | record.memory.regions.keys()).items():
        manifest, merged = manifests.get(region_id), seen.progress.get(region_id, 0)
        target = _target(choice, freeze, region_id, merged, record.memory)
        regions.append(_region_thaw(region_id, manifest, merged, target))
        if manifest is not None:
            obstacles += _region_obstacles(choice, manifest, target)
        elif choice is Choice.DISCARD_GENERATIONS:
            obstacles += _unknown_generations(freeze, region_id)
    vanished = (each.region_id for each in ends if each.cause is FreezeCause.REGION_VANISHED)
    given_up = tuple(each for each in vanished if each is not None and each not in (seen.listed or ()))
    return ThawPlan(choice, ends, stays, tuple(regions), tuple(obstacles), given_up)


def memory_after(memory: Memory, seen: Sighting, ends: Iterable[Freeze], choice: Choice) -> Memory:
    """Return what is remembered once some freezes ended: what they were about, as it is now.

    Args:
        memory: What was remembered.
        seen: The table after the choice was carried out.
        ends: The freezes that end.
        choice: How.
    """
    addresses, table = memory.addresses, memory.table
    progress, regions = dict(memory.progress), dict(memory.regions)
    for freeze in ends:
        if freeze.cause is FreezeCause.ADDRESS_CHANGED and seen.address is not None:
            known = () if choice is Choice.ACCEPT_COPY else addresses
            addresses = tuple(dict.fromkeys((*known, seen.address)))
        if freeze.cause in _TABLE_CAUSES:
            table = seen.table
        if freeze.cause in _INDEX_CAUSES or freeze.cause is FreezeCause.TABLE_WENT_BACK:
            progress = dict(seen.progress)
        elif freeze.region_id is not None:
            _replace(progress, seen.progress, freeze.region_id)
            _replace(regions, seen.regions, freeze.region_id)
    decided = {each.region_id for each in ends if each.region_id is not None}
    return Memory(addresses, table, progress, regions, memory.absent - regions.keys() - decided)


def _replace(known: dict[RegionId, _Seen], present: Mapping[RegionId, _Seen], region_id: RegionId) -> None:
    known.pop(region_id, None)
    if region_id in present:
        known[region_id] = present[region_id]


def _chosen(active: Collection[Freeze], choice: Choice, cause: FreezeCause | None) -> tuple[Freeze, ...]:
    causes = list(dict.fromkeys(each.cause for each in active))
    fitting = [each for each in causes if choice in each.facts.choices]
    if cause is None and len(causes) > 1 and len(fitting) != 1:
        raise InvalidRequestError(
            "the table is frozen for several causes",
            remedy="name the one that your choice is about with --cause",
            causes=[each.value for each in causes],
        )
    named = cause if cause is not None else (fitting or causes)[0]
    if named not in causes:
        raise InvalidRequestError(
            "the table is not frozen for this cause",
            remedy="run `memwal thaw URI` without a choice to see why it is frozen",
            cause=named.value,
            active=[each.value for each in causes],
        )
    if choice not in named.facts.choices:
        raise InvalidRequestError(
            "this choice does not fit the cause",
            remedy="choose one that `memwal thaw URI` offers",
            cause=named.value,
            choice=choice.value,
            choices=[each.value for each in named.facts.choices],
        )
    ends = [each for each in active if each.cause is named]
    # Whoever decides about what is there now has decided about what was gone.
    there = {each.region_id for each in ends if each.cause in _REGION_CAUSES}
    settled = [each for each in active if each.cause is FreezeCause.REGION_VANISHED and each.region_id in there]
    return (*ends, *settled)


def _obstacles(ends: Iterable[Freeze], seen: Sighting) -> Iterator[str]:
    index_is_gone = seen.table is None or seen.table.index_id is None
    if index_is_gone and any(each.cause in _INDEX_COMMITS for each in ends):
        yield "the table has no MemWAL index; restore a version that has it, or run `memwal enable` first"


def _regions_of(ends: Iterable[Freeze], known: Collection[RegionId]) -> dict[RegionId, Freeze]:
    found: dict[RegionId, Freeze] = {}
    for freeze in ends:
        region_id = freeze.region_id
        if freeze.cause in _INDEX_CAUSES:
            found.update(dict.fromkeys(sorted(known), freeze))
        elif freeze.cause in _PROGRESS_CAUSES | _REGION_CAUSES and region_id is not None and region_id in known:
            found[region_id] = freeze
    return found


def _target(choice: Choice, freeze: Freeze, region_id: RegionId, merged: int, memory: Memory) -> int:
    if choice is Choice.MERGE_AGAIN:
        return FIRST_GENERATION - 1 if freeze.cause in _REGION_CAUSES else merged
    if choice is Choice.ACCEPT:
        return merged
    if choice is Choice.RESTORE_PROGRESS:
        # A choice about another cause may have lowered the memory since; the evidence stays.
        return max(merged, memory.progress.get(region_id, 0), _evident(freeze, MERGED_BEFORE, region_id))
    newest = _evident(freeze, FLUSHED, region_id)
    return newest if freeze.cause in _REGION_CAUSES else max(merged, newest)


def _evident(freeze: Freeze, name: str, region_id: RegionId) -> int:
    """Return what the evidence says of a region; 0 if it says nothing."""
    found = freeze.evidence.get(name)
    found = found.get(str(region_id)) if isinstance(found, Mapping) else found
    return found if isinstance(found, int) else 0


def _region_thaw(region_id: RegionId, manifest: RegionManifest | None, merged: int, target: int) -> RegionThaw:
    flushed = manifest.flushed_generations if manifest is not None else ()
    recorded = {each.generation: each.physical_rows for each in flushed}
    return RegionThaw(
        region_id=region_id,
        merged=merged,
        target=target,
        merges=tuple(number for number in recorded if number > target),
        skips={number: rows for number, rows in recorded.items() if min(merged, target) < number <= target},
    )


def _region_obstacles(choice: Choice, manifest: RegionManifest, target: int) -> Iterator[str]:
    region_id, current = manifest.region_id, manifest.current_generation
    if target >= current:
        yield (
            f"region {region_id}: progress {target} is not below its next generation {current}, so that what it "
            "flushes next would be taken for merged"
        )
    missing = list(missing_generations(manifest, target))
    if choice is Choice.MERGE_AGAIN and missing:
        yield (
            f"region {region_id}: generations {missing[0][0]} to {missing[-1][-1]} were collected after their merge "
            "and cannot be merged again; restore a version after that merge, or make another choice"
        )


def _unknown_generations(freeze: Freeze, region_id: RegionId) -> Iterator[str]:
    flushed = freeze.evidence.get(FLUSHED)
    if not isinstance(flushed, Mapping) or str(region_id) not in flushed:
        yield (
            f"region {region_id}: it cannot be read, and could not be when the table froze, so that nothing tells "
            "which generations to discard; bring it back first, see docs/runbooks/corrupt-region-manifest.md"
        )
