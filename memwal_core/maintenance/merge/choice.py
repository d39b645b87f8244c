"""Choosing how a pass commits, and saying why."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.settings import MergeSettings

NATIVE = "native"
SINGLE_COMMIT = "single_commit"


@dataclass(frozen=True, slots=True)
class PassSize:
    """What the choice depends on.

    Attributes:
        size_bytes: Arrow bytes of the generations taken on.
        tombstones: Rows in them that delete their key.
    """

    size_bytes: int
    tombstones: int


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """How a pass commits.

    Attributes:
        name: ``native`` or ``single_commit``.
        reason: Why, for people.
    """

    name: str
    reason: str


def choose_strategy(size: PassSize, settings: MergeSettings, executors: int | None) -> StrategyChoice:
    """Choose between Lance's merge-insert in this process and one commit of prepared fragments.

    Lance's own is the faster one for small merges of upserts. It cannot update and delete in one
    commit, and it holds all rows in memory of one process; the other strategy has neither limit.

    Args:
        size: What the pass takes on.
        settings: ``strategy`` and ``native_max_bytes``.
        executors: Processes that can write fragments; None if only Lance's merge is at hand.
    """
    if executors is None:
        return StrategyChoice(NATIVE, "the only strategy at hand")
    if settings.strategy != "auto":
        return StrategyChoice(settings.strategy, f"the setting merge.strategy is {settings.strategy}")
    if executors > 1:
        return StrategyChoice(SINGLE_COMMIT, f"{executors} executors can write fragments at once")
    if size.tombstones:
        return StrategyChoice(SINGLE_COMMIT, f"{size.tombstones} tombstones: upserts and deletes fit in one commit")
    if size.size_bytes > settings.native_max_bytes:
        return StrategyChoice(
            SINGLE_COMMIT,
            f"{size.size_bytes} bytes are more than the {settings.native_max_bytes} that one process holds at once",
        )
    return StrategyChoice(NATIVE, f"{size.size_bytes} bytes without tombstones in one process")
