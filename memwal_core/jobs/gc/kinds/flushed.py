"""Flushed MemTables that a region manifest records: when their records may be removed."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.rules import caught_up_generation
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Action, FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import BaseState, DirectoryState, GcRegionState, GcState
from memwal_core.region import FlushedGeneration, RegionManifest, RegionStatus, drain

_SHOWN = 5


class FlushedMemTables:
    """Removes the records of flushed MemTables that nothing needs any more."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every recorded flushed MemTable."""
        return [item for region in state.regions for item in _plan_region(region, state.base, policy)]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Drain region by region, according to the present state of the base table."""
        by_region: dict[RegionId, list[Item]] = {}
        for item in items:
            if item.region_id is not None:
                by_region.setdefault(item.region_id, []).append(item)
        if deleter.attempt(items, deleter.sync_base_table):
            deleter.each(list(by_region.items()), lambda pair: self._drain(*pair, deleter))

    def _drain(self, region_id: RegionId, items: Sequence[Item], deleter: Deleter) -> None:
        planned = {item.path: item for item in items}
        drained: list[Item] = []

        def change(stored: RegionManifest) -> RegionManifest | None:
            # Called once per attempt, so that each attempt decides on the state of that moment.
            deleter.guard()
            base = deleter.fresh_base()
            recorded = {generation_path(region_id, each.path): each.generation for each in stored.flushed_generations}
            kept = {path for path, number in recorded.items() if gate_of(base, region_id, number) is not None}
            # What is gone already, an attempt of this run removed that did not live to say so.
            drained[:] = [item for path, item in planned.items() if path not in kept]
            return drain(stored, {item.number for item in drained if item.path in recorded})

        def update() -> None:
            deleter.manifests.update(region_id, change)

        if deleter.attempt(items, update):
            deleter.count(drained)


def gate_of(base: BaseState, region_id: RegionId, generation: int) -> tuple[Gate, str] | None:
    """Return what in the base table still needs a generation's flushed MemTable; None if nothing does.

    ``base`` must have been read after the region's manifest.
    """
    merged = base.merged(region_id)
    if generation > merged:
        return Gate.UNMERGED, f"merge progress is {merged}"
    if base.num_rows == 0:
        return Gate.EMPTY_BASE, f"version {base.version} has no rows"
    details = base.details if base.details is not None else MemWalIndexDetails()
    behind = [
        f"{name} covers up to {covered}" if covered else f"{name} has no entry"
        for name in index_names(base)
        if (covered := caught_up_generation(details, [name], region_id)) < generation
    ]
    if behind:
        return Gate.INDEX_BEHIND, _listed(behind, len(behind))
    retained = base.by_progress(region_id)
    needing = retained.count_needing(generation)
    if not needing:
        return None
    shown = [
        f"{version.label} had merged {progress}"
        for version, progress in zip(retained.versions[:_SHOWN], retained.progress, strict=False)
    ]
    return Gate.RETAINED_VERSION, _listed(shown[:needing], needing)


def index_names(base: BaseState) -> list[str]:
    """Return every index that must have caught up: maintained ones, recorded ones, and others that a query may use.

    An index without a recorded entry has covered nothing. An untrained index needs no flushed MemTable: queries
    scan the base table instead, and its training will read all rows.
    """
    names = set(base.index_names)
    if base.details is not None:
        names.update(base.details.maintained_indexes, base.details.index_catchup)
    return sorted(names - base.untrained)


def _plan_region(region: GcRegionState, base: BaseState, policy: Policy) -> list[Item]:
    if region.manifest is None:
        return []
    present = {each.name: each for each in region.directories}
    merged_s = _merged_s(base, policy)
    planned = []
    for recorded in region.manifest.flushed_generations:
        directory = present.get(recorded.path)
        item = _plan(region, recorded, directory, base, policy)
        if item.action is not None and directory is not None and region.manifest.status is RegionStatus.ACTIVE:
            item = _kept_for_open_writer(item, directory, merged_s, policy)
        planned.append(item)
    return planned


def _merged_s(base: BaseState, policy: Policy) -> float:
    """Return for how long the oldest retained version with the MemWAL index exists."""
    return max(
        (policy.age_s(each.modified) for each in base.retained if each.modified and each.enabled and not each.branch),
        default=0.0,
    )


def _kept_for_open_writer(item: Item, directory: DirectoryState, merged_s: float, policy: Policy) -> Item:
    """Keep what was merged lately in a region that writers of other programs may claim.

    An open writer of pylance reads the base table as of its opening and the generations that the manifest lists. It
    ignores merge progress, so rows that were merged since are hidden from it once their record is gone. Since when
    rows are merged (``merged_s`` at least), the oldest retained version with the MemWAL index tells; where versions go
    sooner than that, twice the time since the flush ends the wait.
    """
    wait_s = policy.gc.open_writer_s
    flushed_s = policy.age_s(directory.modified)
    if merged_s >= wait_s or flushed_s >= 2 * wait_s:
        return item
    return item.kept(Gate.OPEN_WRITER, f"merged for {merged_s:.0f} s at least, of {wait_s:.0f} s")


def _plan(
    region: GcRegionState,
    recorded: FlushedGeneration,
    directory: DirectoryState | None,
    base: BaseState,
    policy: Policy,
) -> Item:
    pinned = base.by_progress(region.region_id).pinned
    item = Item(
        kind=Kind.FLUSHED_MEMTABLE,
        path=generation_path(region.region_id, recorded.path),
        number=recorded.generation,
        region_id=region.region_id,
        objects=0 if directory is None else directory.objects,
        size_bytes=0 if directory is None else directory.size_bytes,
        action=None,
        reason=Gate.UNMERGED,
        age_s=0.0 if directory is None else policy.age_s(directory.modified),
        is_pinned=pinned is not None and pinned < recorded.generation,
    )
    gate = gate_of(base, region.region_id, recorded.generation)
    if gate is not None:
        return item.kept(*gate)
    if directory is not None and directory.generation != recorded.generation:
        return item.kept(Gate.UNEXPECTED_NAME, f"generation {recorded.generation} is recorded as {recorded.path}")
    return item.freed(FreeingRule.COVERED, f"merge progress is {base.merged(region.region_id)}", action=Action.DRAIN)


def _listed(facts: list[str], count: int) -> str:
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return ", ".join(facts[:_SHOWN]) + more
