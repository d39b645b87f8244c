"""Choose where a pass is prepared, and how, and say why. Every way ends in one strict commit."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.jobs.sharing.place import Engine, SizeBound, Work, Workplace
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.settings import MergeSettings


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
    """How a pass is prepared.

    Attributes:
        joined: Whether Lance's merge-insert joins the rows with the base table, all in memory; else they are
            written and looked up in units of bounded size.
    """

    joined: bool
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"joined": self.joined, "reason": self.reason}


def place_here(size: PassSize) -> Workplace:  # noqa: ARG001 - the protocol
    """Choose this process."""
    return Workplace(False, "it is the only one")


def place_pass(size: PassSize, sharing: Sharing, settings: MergeSettings) -> Workplace:
    """Choose where a pass is prepared.

    Work that takes less time than starting tasks stays in this process, even if there are executors. Their slots are
    counted, which may have to start them, only for a pass that is large enough for several.

    Raises:
        InvalidRequestError: Executors were asked for, and there are none.
    """
    bound = SizeBound(settings.executors_min_bytes, "merge.executors_min_bytes")
    place = sharing.judge(Work(size_bytes=size.size_bytes), bound)
    if not place.on_executors or not sharing.has_executors:
        return place
    if not size.has_key:
        return Workplace(False, "the table has no primary key")
    if sharing.engine is Engine.AUTO and sharing.at(place).slots == 1 and bound.size_bytes:
        return Workplace(False, "the executors do no two tasks at once")
    return place


def choose_strategy(size: PassSize, settings: MergeSettings, place: Workplace) -> StrategyChoice:
    """Choose how a pass is prepared.

    In one process, Lance's join is the fastest for small passes; it holds all rows in memory and knows neither
    tombstones beside upserts nor columns that the base table supplies.
    """
    obstacle = "executors share the work" if place.on_executors else _obstacle(size, settings)
    if obstacle:
        return StrategyChoice(False, f"{obstacle}: written and looked up in units")
    return StrategyChoice(True, f"{size.size_bytes} bytes of upserts: joined by Lance")


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
