"""Which rows a table may have after a cut: what was acknowledged, and what was under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testkit.powercut.operations import Mark, Recording
from testkit.simulation.model import Value


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What a correct table shows.

    Attributes:
        acknowledged: Key -> value, None for a deleted row; all other keys never existed.
        under_way: A write that had begun and was not acknowledged: its rows are there, all or part of them, or not.
    """

    acknowledged: Mapping[int, Value]
    under_way: Mapping[int, Value]

    @classmethod
    def at(cls, recording: Recording, place: int) -> ExpectedRows:
        """Return what the process had said before a place."""
        acknowledged: dict[int, Value] = {}
        under_way: dict[int, Value] = {}
        for operation in recording.operations[:place]:
            if not isinstance(operation, Mark) or "rows" not in operation.said:
                continue
            under_way = {int(key): value for key, value in operation.said["rows"].items()}
            if "ends" in operation.said:
                acknowledged.update(under_way)
                under_way = {}
        return cls(acknowledged, under_way)

    def problems(self, found: Mapping[int, Value]) -> list[str]:
        """Return what is wrong with the rows of a table."""
        wrong = []
        for key in sorted(self.acknowledged.keys() | self.under_way.keys() | found.keys()):
            value = found.get(key)
            allowed = {self.acknowledged.get(key), self.under_way.get(key, self.acknowledged.get(key))}
            if value not in allowed:
                wrong.append(f"row {key} is {value!r} and not {' or '.join(sorted(map(repr, allowed)))}")
        return wrong
