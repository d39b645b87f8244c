"""Directories of flushed MemTables that no manifest records: drained ones, and orphans of failed flushes."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.format.paths import generation_path
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Action, FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.kinds.flushed import gate_of
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import BaseState, DirectoryState, GcRegionState, GcState


class UnrecordedDirectories:
    """Deletes directories that no reader, merge or flush can reach any more."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every unrecorded directory whose name has the form of a flushed MemTable's."""
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


def plan_directories(region: GcRegionState, base: BaseState, policy: Policy) -> list[Item]:
    """Return the unrecorded directories of one region."""
    recorded = region.recorded
    return [_plan(region, each, base, policy) for each in region.directories if each.name not in recorded]


def staying_directories(region: GcRegionState, base: BaseState, policy: Policy) -> list[DirectoryState]:
    """Return the directories that remain after this plan: recorded, or kept by a gate."""
    leaving = {item.path for item in plan_directories(region, base, policy) if item.action is Action.DELETE}
    return [each for each in region.directories if generation_path(region.region_id, each.name) not in leaving]


def _plan(region: GcRegionState, directory: DirectoryState, base: BaseState, policy: Policy) -> Item:
    item = Item(
        kind=Kind.DIRECTORY,
        path=generation_path(region.region_id, directory.name),
        number=directory.generation,
        region_id=region.region_id,
        objects=directory.objects,
        size_bytes=directory.size_bytes,
        action=None,
        reason=Gate.YOUNG,
        age_s=policy.age_s(directory.modified),
    )
    drained_at = region.drained.get(directory.name)
    if drained_at is None:
        return _plan_orphan(item, region, directory, policy)
    # Another program may have removed the record too early, so the gates decide once more.
    gate = gate_of(base, region.region_id, directory.generation)
    if gate is not None:
        return item.kept(*gate)
    since = policy.age_s(drained_at)
    if since < policy.gc.grace_s:
        return item.kept(Gate.GRACE, f"unrecorded for {since:.0f} s of {policy.gc.grace_s:.0f} s")
    return item.freed(FreeingRule.DRAINED, f"unrecorded for {since:.0f} s")


def _plan_orphan(item: Item, region: GcRegionState, directory: DirectoryState, policy: Policy) -> Item:
    age = policy.age_s(directory.modified)
    if age < policy.gc.orphan_age_s:
        return item.kept(Gate.YOUNG, f"{age:.0f} s of {policy.gc.orphan_age_s:.0f} s old")
    current = 0 if region.manifest is None else region.manifest.current_generation
    if directory.generation >= current and not _writer_is_fenced(region, directory):
        return item.kept(
            Gate.MAY_BE_RECORDED,
            f"generation {directory.generation} is not flushed yet (current {current}), and no writer has claimed the "
            "region since",
        )
    return item.freed(FreeingRule.ORPHAN, f"{age:.0f} s old")


def _writer_is_fenced(region: GcRegionState, directory: DirectoryState) -> bool:
    """Return whether the region was claimed after a directory was written.

    If so, its writer is refused when it tries to record the directory, however long it slept. Without a
    manifest version from before the directory, the oldest retained one stands in: an epoch higher than that
    one's was claimed later still.
    """
    if region.manifest is None or not region.epochs:
        return False
    before = [epoch for modified, epoch in region.epochs if modified <= directory.modified]
    return region.manifest.writer_epoch > (before[-1] if before else region.epochs[0][1])
