"""Keys that the processes of a merge pass staged for each other, left behind when the pass failed.

A pass removes its own keys. A pass that still runs and loses them plans anew: nothing that is committed depends
on staged keys. The data files that they name were never committed; the base table's own clean-up removes those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import parse_staged_keys_path
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import FreeingRule, Gate, Item, Kind
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState
from memwal_core.storage.protocol import ObjectInfo

GroupOf = Callable[[str], str]
"""From a path to the pass or batch that staged it; raises ``InvalidRequestError`` if the path has another form."""


class StagedKeyFiles:
    """Deletes the staged keys of merge passes that wrote nothing for long; shows objects with another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return everything in the staging directory of merges."""
        return plan_staged(state.merge_staging, parse_staged_keys_path, (Kind.STAGED_KEYS, "merge pass"), policy)

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; passes generate new names, so no pass can begin to need one."""
        deleter.each(list(items), deleter.delete_object)


def plan_staged(objects: Sequence[ObjectInfo], group_of: GroupOf, what: tuple[Kind, str], policy: Policy) -> list[Item]:
    """Return an item for each object of a staging directory; ``what`` has their kind and, for people, what stages them.

    Files go together with the newest file of their group: a pass or batch that still writes may read what it
    wrote first.
    """
    groups = {info.path: _group(info, group_of) for info in objects}
    newest: dict[str, datetime] = {}
    for info in objects:
        group = groups[info.path]
        if group is not None:
            newest[group] = max(newest.get(group, info.modified), info.modified)
    return [_plan(info, groups[info.path], newest, what, policy) for info in objects]


def _plan(
    info: ObjectInfo, group: str | None, newest: Mapping[str, datetime], what: tuple[Kind, str], policy: Policy
) -> Item:
    if group is None:
        return Item(Kind.UNKNOWN, info.path, 0, None, 1, info.size_bytes, None, Gate.UNKNOWN)
    kind, writer = what
    item = Item(kind, info.path, 0, None, 1, info.size_bytes, None, Gate.YOUNG)
    quiet = policy.age_s(newest[group])
    if quiet < policy.gc.orphan_age_s:
        return item.kept(Gate.YOUNG, f"its {writer} wrote {quiet:.0f} s of {policy.gc.orphan_age_s:.0f} s ago")
    return item.freed(FreeingRule.ABANDONED, f"its {writer} wrote last {quiet:.0f} s ago")


def _group(info: ObjectInfo, group_of: GroupOf) -> str | None:
    try:
        return group_of(info.path)
    except InvalidRequestError:
        return None
