"""Choose how a pass commits, and say why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memwal_core.settings import MergeSettings

NATIVE = "native"
SINGLE_COMMIT = "single_commit"


@dataclass(frozen=True, slots=True)
class PassSize:
    """Arrow bytes of the generations of a pass, how many rows are tombstones, and whether rows have a key."""

    size_bytes: int
    tombstones: int
    has_key: bool = True


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """How a pass commits, and where its work is done.

    Attributes:
        name: ``native`` or ``single_commit``.
        reason: Why, for people.
        on_executors: Whether the pass goes to executors, if there are any.
    """

    name: str
    reason: str
    on_executors: bool = True


def choose_strategy(size: PassSize, settings: MergeSettings, executors: Callable[[], int] | None) -> StrategyChoice:
    """Choose between Lance's merge-insert in this process and one commit of prepared fragments.

    Lance's merge-insert is as fast for the smallest merges of upserts, and lets Lance settle conflicts with
    other commits. It cannot update and delete in one commit, holds all rows in the memory of one process, and
    is slower beyond about a MiB. Work that takes less time than starting tasks stays in this process, even if
    there are executors.

    ``executors`` counts the processes that can write fragments. It may have to start them, so it is called only
    for passes that are large enough for several; None if only Lance's merge-insert is available.
    """
    if executors is None:
        return StrategyChoice(NATIVE, "the only strategy available")
    if not size.has_key:
        reason = "the table has no primary key: rows are appended"
        return StrategyChoice(SINGLE_COMMIT, reason, on_executors=False)
    if settings.strategy != "auto":
        return StrategyChoice(settings.strategy, f"the setting merge.strategy is {settings.strategy}")
    if size.size_bytes >= settings.executors_min_bytes and (count := executors()) > 1:
        return StrategyChoice(SINGLE_COMMIT, f"{count} executors can write fragments at once")
    if size.tombstones:
        reason = f"{size.tombstones} tombstones: upserts and deletes fit in one commit"
        return StrategyChoice(SINGLE_COMMIT, reason, on_executors=False)
    if size.size_bytes > settings.native_max_bytes:
        reason = f"{size.size_bytes} bytes are more than merge.native_max_bytes, which is {settings.native_max_bytes}"
        return StrategyChoice(SINGLE_COMMIT, reason, on_executors=False)
    reason = f"{size.size_bytes} bytes without tombstones in one process"
    return StrategyChoice(NATIVE, reason, on_executors=False)
