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


class WrongRowError(AssertionError):
    """A reader saw a row that was possible at no moment of its read."""


@dataclass(frozen=True, slots=True)
class TableMoment:
    """What was possible when a read began; see ``Model.moment``."""

    possible: Mapping[int, frozenset[Value]]
    number: int


class Model:
    """The acknowledged writes, and those whose outcome nobody knows.

    An acknowledged write leaves exactly one value possible, except for writes that happened inside
    its own time (they may have come before or after it) and for writes that failed with an unknown
    outcome and are still in the memory of another writer: they may follow with its next write.
    """

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._possible: dict[int, set[Value]] = {}
        self._history: list[tuple[int, Value]] = []
        self._pending: dict[object, list[tuple[int, Value]]] = {}
        self._under_way: list[Mapping[int, Value]] = []

    def begin(self, writes: Mapping[int, Value]) -> int:
        """Note that a write begins, and return the moment."""
        self._under_way.append(writes)
        return len(self._history)

    def acknowledged(self, since: int, writes: Mapping[int, Value], writer: object) -> None:
        """Note a write of a writer that was acknowledged, and that began at ``since``."""
        self._ended(writes)
        self.settled(writer)
        pending = [write for others in self._pending.values() for write in others]
        for key, value in writes.items():
            others = {other for other_key, other in [*self._history[since:], *pending] if other_key == key}
            self._possible[key] = {value} | others
        self._history.extend(writes.items())

    def in_doubt(self, writes: Mapping[int, Value], writer: object) -> None:
        """Note a write that may or may not have happened, or may still happen while the writer lives."""
        self._ended(writes)
        for key, value in writes.items():
            self._possible.setdefault(key, {None}).add(value)
        self._history.extend(writes.items())
        self._pending.setdefault(writer, []).extend(writes.items())

    def refused(self, writes: Mapping[int, Value]) -> None:
        """Note a write that ended before anything of it was tried."""
        self._ended(writes)

    def settled(self, writer: object) -> None:
        """Note that nothing of a writer's memory can still follow: it was written, or the writer is gone."""
        self._pending.pop(writer, None)

    def mismatches(self, found: Mapping[int, str]) -> list[Mismatch]:
        """Return the keys whose found value is impossible; nobody may be writing."""
        return self.mismatches_since(self.moment(), found)

    def moment(self) -> TableMoment:
        """Return the present, for a read that begins now and during which others may write."""
        possible = {key: frozenset(values) for key, values in self._possible.items()}
        for write in self._under_way:
            for key, value in write.items():
                possible[key] = possible.get(key, frozenset({None})) | {value}
        return TableMoment(possible, len(self._history))

    def mismatches_since(self, began: TableMoment, found: Mapping[int, str]) -> list[Mismatch]:
        """Return the keys whose found value was possible at no time since a read began.

        Args:
            began: When it began.
            found: Key -> value, all keys of the table.
        """
        since = {key: set(values) for key, values in began.possible.items()}
        for key, value in self._history[began.number :]:
            since.setdefault(key, {None}).add(value)
        return [
            Mismatch(key, found.get(key), tuple(sorted(allowed, key=str)))
            for key in sorted(since.keys() | found.keys())
            if found.get(key) not in (allowed := since.get(key, {None}))
        ]

    def _ended(self, writes: Mapping[int, Value]) -> None:
        self._under_way = [write for write in self._under_way if write is not writes]
