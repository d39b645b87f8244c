"""Choose where a pass is prepared, and how, and say why. Every way ends in one strict commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from memwal_core.settings import MergeSettings

IN_PROCESS = "in_process"
EXECUTORS = "executors"


@dataclass(frozen=True, slots=True)
class PassSize:
    """What a pass takes on.

    Attributes:
        size_bytes: Arrow bytes of its generations.
        lacks_columns: Whether generations lack columns, which the base table supplies.
        has_key: Whether rows have a primary key; without one they are appended.
        join_obstacle: Why Lance cannot join these columns; empty if it can.
    """

    size_bytes: int
    tombstones: int
    lacks_columns: bool = False
    has_key: bool = True
    join_obstacle: str = ""


@dataclass(frozen=True, slots=True)
class StrategyChoice:
    """Where a pass is prepared, and how.

    Attributes:
        name: ``in_process`` or ``executors``.
        joined: Whether Lance's merge-insert joins the rows with the base table, all in memory; else they are
            written and looked up in units of bounded size.
    """

    name: str
    reason: str
    joined: bool = False


def choose_strategy(size: PassSize, settings: MergeSettings, executors: Callable[[], int] | None) -> StrategyChoice:
    """Choose where a pass is prepared.

    Work that takes less time than starting tasks stays in this process, even if there are executors. In one
    process, Lance's join is the fastest for small passes; it holds all rows in memory and knows neither tombstones
    beside upserts nor columns that the base table supplies.

    ``executors`` counts the processes that can write fragments. It may have to start them, so it is called only
    for passes that are large enough for several; None if there are none.
    """
    if executors is not None and size.has_key:
        if settings.strategy == EXECUTORS:
            return StrategyChoice(EXECUTORS, "it was asked for, by the run or by merge.strategy")
        large = settings.strategy == "auto" and size.size_bytes >= settings.executors_min_bytes
        if large and (count := executors()) > 1:
            return StrategyChoice(EXECUTORS, f"{count} executors can write fragments at once")
    obstacle = _obstacle(size, settings)
    if obstacle:
        return StrategyChoice(IN_PROCESS, f"{obstacle}: written and looked up in units")
    return StrategyChoice(IN_PROCESS, f"{size.size_bytes} bytes of upserts: joined by Lance", joined=True)


def _obstacle(size: PassSize, settings: MergeSettings) -> str:
    """Return why Lance cannot or should not join a pass; empty if it should."""
    if not size.has_key:
        return "the table has no primary key"
    if size.tombstones:
        return f"{size.tombstones} tombstones"
    if size.lacks_columns:
        return "generations lack columns"
    if size.join_obstacle:
        return size.join_obstacle
    if size.size_bytes > settings.join_max_bytes:
        return f"{size.size_bytes} bytes are more than merge.join_max_bytes, which is {settings.join_max_bytes}"
    return ""
