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
class _Accepted:
    """The newest value of a key that a writer has only in its memory, and the moment when its write began."""

    since: int
    value: Value


@dataclass(frozen=True, slots=True)
class _Written:
    """A write that may have happened; ``accepted_by`` is the writer that follows it with its own later ones."""

    key: int
    value: Value
    accepted_by: object = None


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

    A buffered write is accepted first: it may be durable or not. What its writer has accepted when a flush or a close
    of it succeeds counts as acknowledged then.
    """

    def __init__(self) -> None:
        """Begin with an empty table."""
        self._possible: dict[int, set[Value]] = {}
        self._history: list[_Written] = []
        self._pending: dict[object, list[tuple[int, Value]]] = {}
        self._accepted: dict[object, dict[int, _Accepted]] = {}
        self._under_way: list[Mapping[int, Value]] = []

    def begin(self, writes: Mapping[int, Value]) -> int:
        """Note that a write begins, and return the moment."""
        self._under_way.append(writes)
        return len(self._history)

    def acknowledged(self, since: int, writes: Mapping[int, Value], writer: object) -> None:
        """Note a write of a writer that was acknowledged, and that began at ``since``; it follows what was accepted."""
        self._ended(writes)
        self.promised(writer)
        for key, value in writes.items():
            self._happened(key, _Accepted(since, value), writer)
        self._history.extend(_Written(key, value) for key, value in writes.items())

    def accepted(self, since: int, writes: Mapping[int, Value], writer: object) -> None:
        """Note a write that a writer has taken into its memory, and that began at ``since``."""
        self.in_doubt(writes, writer, accepted_by=writer)
        self._accepted.setdefault(writer, {}).update({key: _Accepted(since, value) for key, value in writes.items()})

    def promised(self, writer: object) -> None:
        """Note that all rows in a writer's memory are durable, as it said."""
        accepted = self._accepted.pop(writer, {})
        self.settled(writer)
        for key, write in accepted.items():
            self._happened(key, write, writer)

    def in_doubt(self, writes: Mapping[int, Value], writer: object, *, accepted_by: object = None) -> None:
        """Note a write that may or may not have happened, or may still happen while the writer lives."""
        self._ended(writes)
        for key, value in writes.items():
            self._possible.setdefault(key, {None}).add(value)
        self._history.extend(_Written(key, value, accepted_by) for key, value in writes.items())
        self._pending.setdefault(writer, []).extend(writes.items())

    def refused(self, writes: Mapping[int, Value]) -> None:
        """Note a write that ended before anything of it was tried."""
        self._ended(writes)

    def settled(self, writer: object) -> None:
        """Note that nothing of a writer's memory can still follow: it was written, or the writer is gone."""
        self._pending.pop(writer, None)
        self._accepted.pop(writer, None)

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
        """Return the keys whose found value was possible at no time since a read began, writes under way included.

        Args:
            began: When it began.
            found: Key -> value, all keys of the table.
        """
        since = {key: set(values) for key, values in began.possible.items()}
        written = [(write.key, write.value) for write in self._history[began.number :]]
        under_way = [item for writes in self._under_way for item in writes.items()]
        for key, value in (*written, *under_way):
            since.setdefault(key, {None}).add(value)
        return [
            Mismatch(key, found.get(key), tuple(sorted(allowed, key=str)))
            for key in sorted(since.keys() | found.keys())
            if found.get(key) not in (allowed := since.get(key, {None}))
        ]

    def _happened(self, key: int, write: _Accepted, writer: object) -> None:
        """Leave the value possible, and those that others wrote since it began or may still write."""
        since = [each for each in self._history[write.since :] if writer != each.accepted_by]
        pending = [value for others in self._pending.values() for other, value in others if other == key]
        self._possible[key] = {write.value, *pending, *(each.value for each in since if each.key == key)}

    def _ended(self, writes: Mapping[int, Value]) -> None:
        self._under_way = [write for write in self._under_way if write is not writes]
