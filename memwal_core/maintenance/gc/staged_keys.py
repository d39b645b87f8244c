"""Keys that the processes of a merge pass staged for each other, left behind when the pass died.

A pass removes its own. One that still runs and loses them plans anew: nothing that is committed
depends on staged keys. The data files that they name were never committed, and go with the base
table's own clean-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from memwal_core.errors import InvalidRequestError
from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.items import Gate, Item, Kind, Rule
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.state import GcState
from memwal_core.storage.layout import parse_staged_keys_path
from memwal_core.storage.protocol import ObjectInfo


class StagedKeyFiles:
    """Deletes the staged keys of merge passes that wrote nothing for long; shows what has another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return everything in the staging directory of merges."""
        newest = _newest_by_pass(state.merge_staging)
        return [_plan(info, newest, policy) for info in state.merge_staging]

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; passes draw new names, so nothing can begin to need one."""
        deleter.each(list(items), deleter.delete_object)


def _plan(info: ObjectInfo, newest: dict[str, datetime], policy: Policy) -> Item:
    merge_pass = _pass_of(info)
    if merge_pass is None:
        return Item(Kind.UNKNOWN, info.path, 0, None, 1, info.size_bytes, None, Gate.UNKNOWN)
    item = Item(Kind.STAGED_KEYS, info.path, 0, None, 1, info.size_bytes, None, Gate.YOUNG)
    quiet = policy.age_s(newest[merge_pass])
    if quiet < policy.gc.orphan_age_s:
        return item.held(Gate.YOUNG, f"its merge pass wrote {quiet:.0f} s of {policy.gc.orphan_age_s:.0f} s ago")
    return item.freed(Rule.ABANDONED, f"its merge pass wrote last {quiet:.0f} s ago")


def _newest_by_pass(objects: Iterable[ObjectInfo]) -> dict[str, datetime]:
    """Return when each pass wrote last: as long as it writes, it may read what it wrote first."""
    newest: dict[str, datetime] = {}
    for info in objects:
        merge_pass = _pass_of(info)
        if merge_pass is not None:
            newest[merge_pass] = max(newest.get(merge_pass, info.modified), info.modified)
    return newest


def _pass_of(info: ObjectInfo) -> str | None:
    try:
        return parse_staged_keys_path(info.path)
    except InvalidRequestError:
        return None
