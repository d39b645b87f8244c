"""Directories of flushed MemTables that no manifest records: drained ones, and orphans of failed flushes."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.flushed import gate_of
from memwal_core.maintenance.gc.items import Action, Gate, Item, Kind, Rule
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.state import BaseState, DirectoryState, GcState, RegionState
from memwal_core.storage.layout import generation_path


class UnrecordedDirectories:
    """Deletes directories that nobody can reach any more."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every directory in the form of a flushed MemTable's that is not recorded."""
        return [item for region in state.regions for item in plan_directories(region, state.base, policy)]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete what the newest manifest still does not record."""
        fresh = deleter.recorded_paths({item.region_id for item in items if item.region_id is not None})
        # A region that could not be read keeps everything.
        still = [
            item
            for item in items
            if item.region_id is not None and item.region_id in fresh and item.path not in fresh[item.region_id]
        ]
        deleter.each(still, deleter.delete_directory)


def plan_directories(region: RegionState, base: BaseState, policy: Policy) -> list[Item]:
    """Return the unrecorded directories of one region."""
    recorded = region.recorded
    return [_plan(region, each, base, policy) for each in region.directories if each.name not in recorded]


def staying_directories(region: RegionState, base: BaseState, policy: Policy) -> list[DirectoryState]:
    """Return the directories that are there after this plan: recorded, or held by a gate."""
    leaving = {item.path for item in plan_directories(region, base, policy) if item.action is Action.DELETE}
    return [each for each in region.directories if generation_path(region.region_id, each.name) not in leaving]


def _plan(region: RegionState, directory: DirectoryState, base: BaseState, policy: Policy) -> Item:
    item = Item(
        kind=Kind.DIRECTORY,
        path=generation_path(region.region_id, directory.name),
        number=directory.generation,
        region_id=region.region_id,
        objects=directory.objects,
        size_bytes=directory.size_bytes,
        action=None,
        reason=Gate.YOUNG,
    )
    drained_at = region.drained.get(directory.name)
    if drained_at is None:
        return _plan_orphan(item, region, directory, policy)
    # Somebody else may have removed the record too early; then what needs it decides once more.
    gate = gate_of(base, region.region_id, directory.generation)
    if gate is not None:
        return item.held(*gate)
    since = policy.age_s(drained_at)
    if since < policy.gc.grace_s:
        return item.held(Gate.GRACE, f"unrecorded for {since:.0f} s of {policy.gc.grace_s:.0f} s")
    return item.freed(Rule.DRAINED, f"unrecorded for {since:.0f} s")


def _plan_orphan(item: Item, region: RegionState, directory: DirectoryState, policy: Policy) -> Item:
    age = policy.age_s(directory.modified)
    if age < policy.gc.orphan_age_s:
        return item.held(Gate.YOUNG, f"{age:.0f} s of {policy.gc.orphan_age_s:.0f} s old")
    current = 0 if region.manifest is None else region.manifest.current_generation
    if directory.generation >= current and not _writer_is_fenced(region, directory):
        return item.held(
            Gate.MAY_BE_RECORDED,
            f"generation {directory.generation} is not flushed yet (current {current}), and nobody has claimed the "
            "region since",
        )
    return item.freed(Rule.ORPHAN, f"{age:.0f} s old")


def _writer_is_fenced(region: RegionState, directory: DirectoryState) -> bool:
    """Return whether the region was claimed after a directory was written.

    Then its writer, however long it has slept, is refused when it tries to record it. Without a
    manifest version from before the directory, the oldest retained one stands in: a higher epoch
    now than then was claimed later still.
    """
    if region.manifest is None or not region.epochs:
        return False
    before = [epoch for modified, epoch in region.epochs if modified <= directory.modified]
    return region.manifest.writer_epoch > (before[-1] if before else region.epochs[0][1])
