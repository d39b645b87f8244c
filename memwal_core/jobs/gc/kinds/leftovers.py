"""Leftovers of failed writes: staged manifests of the base table, temporary files in regions.

Staging files of local stores are not among them; the store itself removes those after a day.
"""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState, NumberedObject
from memwal_core.storage.protocol import ObjectInfo


class Leftovers:
    """Deletes staged manifests whose version exists, and old temporary files; shows unknown files."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every leftover, and the files of unknown form."""
        own = {version.version for version in state.base.retained if version.branch is None}
        staged = [_plan_staged(each, own, policy) for each in state.staged]
        temporary = [
            _aged(
                Item(Kind.LEFTOVER, info.path, 0, region.region_id, 1, info.size_bytes, None, Gate.YOUNG), info, policy
            )
            for region in state.regions
            for info in region.temporaries
        ]
        unknown = [
            Item(Kind.UNKNOWN, info.path, 0, region.region_id, 1, info.size_bytes, None, Gate.UNKNOWN)
            for region in state.regions
            for info in region.unknown
        ]
        return [*staged, *temporary, *unknown]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; nothing that happens meanwhile can make one needed."""
        deleter.each(list(items), deleter.delete_object)


def _plan_staged(staged: NumberedObject, versions: set[int], policy: Policy) -> Item:
    item = Item(Kind.LEFTOVER, staged.info.path, staged.number, None, 1, staged.info.size_bytes, None, Gate.YOUNG)
    if staged.number not in versions:
        # A catalog may still point at it, or its commit may be under way.
        return item.kept(Gate.MAY_BE_RECORDED, f"version {staged.number} has no other manifest")
    return _aged(item, staged.info, policy)


def _aged(item: Item, info: ObjectInfo, policy: Policy) -> Item:
    age = policy.age_s(info.modified)
    if age < policy.gc.orphan_age_s:
        return item.kept(Gate.YOUNG, f"{age:.0f} s of {policy.gc.orphan_age_s:.0f} s old")
    return item.freed(FreeingRule.ABANDONED, f"{age:.0f} s old")
