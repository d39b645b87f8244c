"""WAL entries: unreferenced, and flushed too long ago for a stalled writer to fill their position again."""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.format.paths import ARROW_WAL_SUFFIX
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.kinds.directories import staying_directories
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import DirectoryState, GcRegionState, GcState, NumberedObject
from memwal_core.settings import WalCollection


class WalEntries:
    """Deletes WAL entries that no replay, no flushed MemTable and no fencing needs."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every WAL entry."""
        return [
            item
            for region in state.regions
            for item in _plan_region(region, staying_directories(region, state.base, policy), policy)
        ]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete what is still free after the directories are gone and the regions have been read again."""
        planned = {item.path for item in items}
        regions = {item.region_id for item in items if item.region_id is not None}
        still = [item for item in deleter.plan_again(_plan_remaining, regions) if item.action and item.path in planned]
        deleter.each(still, deleter.delete_object)


def _plan_remaining(state: GcState, policy: Policy) -> list[Item]:
    """Plan after the directories were deleted: every one that still exists counts, planned or not."""
    return [item for region in state.regions for item in _plan_region(region, region.directories, policy)]


def _plan_region(region: GcRegionState, directories: Sequence[DirectoryState], policy: Policy) -> list[Item]:
    if region.manifest is None or not region.wal:
        return []
    newest = region.wal[-1].number
    users, unclear = _references(region, directories)
    switched_off = _switched_off(region, policy.gc.collect_wal)
    items = []
    for entry in region.wal:
        item = Item(
            kind=Kind.WAL_ENTRY,
            path=entry.info.path,
            number=entry.number,
            region_id=region.region_id,
            objects=1,
            size_bytes=entry.info.size_bytes,
            action=None,
            reason=Gate.NOT_FLUSHED,
            age_s=policy.age_s(entry.info.modified),
        )
        gate = (
            _gate(entry, region.manifest.replay_after_wal_id, newest)
            or switched_off
            or _age(entry, policy)
            or _settled(entry, region.settled_wal_id, policy)
            or _use(entry, users, unclear)
        )
        items.append(item.freed(FreeingRule.UNREFERENCED) if gate is None else item.kept(*gate))
    return items


def _gate(entry: NumberedObject, replay_after_wal_id: int, newest: int) -> tuple[Gate, str] | None:
    if entry.number > replay_after_wal_id:
        return Gate.NOT_FLUSHED, f"the replay pointer is {replay_after_wal_id}"
    if entry.number == newest:
        # Without it, a later writer would start again at a position that an older one may still fill.
        return Gate.FENCE, "it is the newest entry"
    return None


def _switched_off(region: GcRegionState, collected: WalCollection) -> tuple[Gate, str] | None:
    if collected is WalCollection.NONE:
        return Gate.SWITCHED_OFF, "gc.collect_wal is none; whether a flushed MemTable needs it was not read"
    if collected is WalCollection.OURS and ARROW_WAL_SUFFIX in region.wal_suffixes:
        return Gate.SWITCHED_OFF, "gc.collect_wal is ours, and Lance's own writer may write this region"
    return None


def _age(entry: NumberedObject, policy: Policy) -> tuple[Gate, str] | None:
    age = policy.age_s(entry.info.modified)
    if age < policy.wal_age_s:
        return Gate.YOUNG, f"{age:.0f} s of {policy.wal_age_s:.0f} s old"
    return None


def _settled(entry: NumberedObject, settled_wal_id: int, policy: Policy) -> tuple[Gate, str] | None:
    """Keep what an older writer may not know of: its next put would find the place free, and be acknowledged."""
    if entry.number > settled_wal_id:
        return Gate.YOUNG, f"the replay pointer passed it less than {policy.settled_s:.0f} s ago"
    return None


def _use(entry: NumberedObject, users: dict[int, str], unclear: str) -> tuple[Gate, str] | None:
    if entry.number in users:
        return Gate.REFERENCED, users[entry.number]
    return (Gate.UNCLEAR, unclear) if unclear else None


def _references(region: GcRegionState, directories: Sequence[DirectoryState]) -> tuple[dict[int, str], str]:
    """Return WAL id -> a directory that consists of it, and why that may be incomplete."""
    users: dict[int, str] = {}
    problems = [_hole(region)]
    for directory in directories:
        if directory.wal_ids is None:
            problems.append(f"{directory.name}: {directory.problem}")
        users.update(dict.fromkeys(directory.wal_ids or (), directory.name))
    return users, next((problem for problem in problems if problem), "")


def _hole(region: GcRegionState) -> str:
    """Find a hole in the WAL above the replay pointer, which means that an entry was lost."""
    manifest = region.manifest
    if manifest is None:
        return ""
    tail = [entry.number for entry in region.wal if entry.number > manifest.replay_after_wal_id]
    expected = manifest.replay_after_wal_id + 1
    for number in tail:
        if number != expected:
            return f"WAL entry {expected} is missing although {number} exists"
        expected += 1
    return ""
