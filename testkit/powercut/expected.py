"""Which rows a table may have after a cut: what was acknowledged, and what was under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from testkit.powercut.operations import Mark, Recording
from testkit.simulation.model import Value


class ExpectedRows:
    """What a correct table shows.

    A write that was not acknowledged, because the power or its process was cut, leaves two values possible, until
    a later one of the same row is acknowledged.
    """

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._possible: dict[int, set[Value]] = {}

    @classmethod
    def at(cls, recording: Recording, place: int) -> Self:
        """Return what the recorded processes had said before a place."""
        expected = cls()
        for operation in recording.operations[:place]:
            if isinstance(operation, Mark) and "rows" in operation.said:
                expected.note(operation.said["rows"], acknowledged="ends" in operation.said)
        return expected

    def note(self, rows: Mapping[str, Value], *, acknowledged: bool) -> None:
        """Note that a write begins, or that it was acknowledged; None is a deleted row."""
        for key, value in rows.items():
            before = set() if acknowledged else self._possible.get(int(key), {None})
            self._possible[int(key)] = before | {value}

    def problems(self, found: Mapping[int, Value]) -> list[str]:
        """Return what is wrong with the rows of a table."""
        wrong = []
        for key in sorted(self._possible.keys() | found.keys()):
            possible = self._possible.get(key, {None})
            if found.get(key) not in possible:
                wrong.append(f"row {key} is {found.get(key)!r} and not {' or '.join(sorted(map(repr, possible)))}")
        return wrong
