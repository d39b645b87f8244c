"""What the table may hold: for each key, the values that a correct implementation can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Value = str | None
"""The value of a key; None if the key does not exist."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A key whose value no correct implementation could show."""

    key: int
    found: Value
    allowed: tuple[Value, ...]


class Model:
    """The acknowledged writes, and those whose outcome nobody knows.

    An acknowledged write leaves exactly one value possible, except for writes that happened inside
    its own time: they may have come before or after it. A write that failed with an unknown outcome
    adds a possible value until the next acknowledged one.
    """

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._possible: dict[int, set[Value]] = {}
        self._history: list[tuple[int, Value]] = []

    def begin(self) -> int:
        """Return the moment at which a write begins."""
        return len(self._history)

    def acknowledged(self, since: int, writes: Mapping[int, Value]) -> None:
        """Note a write that was acknowledged, and that began at ``since``."""
        for key, value in writes.items():
            meanwhile = {other for other_key, other in self._history[since:] if other_key == key}
            self._possible[key] = {value} | meanwhile
        self._history.extend(writes.items())

    def in_doubt(self, writes: Mapping[int, Value]) -> None:
        """Note a write that may or may not have happened, or may still happen."""
        for key, value in writes.items():
            self._possible.setdefault(key, {None}).add(value)
        self._history.extend(writes.items())

    def mismatches(self, found: Mapping[int, str]) -> list[Mismatch]:
        """Return the keys whose found value is impossible."""
        keys = self._possible.keys() | found.keys()
        return [
            Mismatch(key, found.get(key), tuple(sorted(allowed, key=str)))
            for key in sorted(keys)
            if found.get(key) not in (allowed := self._possible.get(key, {None}))
        ]
