"""A store that records its calls and fails where it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TypeVar

from memwal_core.errors import UnavailableError
from memwal_core.rng import Rng
from memwal_core.storage.limits import MAX_OBJECT_BYTES
from memwal_core.storage.protocol import ObjectInfo, ObjectPart, ObjectStore, StoreKind

_Result = TypeVar("_Result")

WRITES = frozenset(
    {
        "put",
        "put_if_absent",
        "put_parts_if_absent",
        "put_file_if_absent",
        "put_large",
        "link",
        "delete",
        "delete_directory",
    }
)


class Moment(StrEnum):
    """When a rule acts."""

    BEFORE = "before"
    """Nothing happens in the store if the rule raises."""
    AFTER = "after"
    """The effect has happened; a rule that raises is a lost reply."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the method's name and its path or prefix."""

    operation: str
    path: str


@dataclass
class Rule:
    """What happens at which calls.

    Attributes:
        action: Called with the call; raises to make it fail, or does something in between.
        moment: Before or after the effect.
        operations: Methods concerned; empty for all.
        path: Which paths are concerned.
        nth: First of the matching calls that the rule acts on, from 1.
        times: How many calls it acts on from there; None for all.
        matched: Matching calls so far.
    """

    action: Callable[[Call], None]
    moment: Moment
    operations: frozenset[str] = frozenset()
    path: Callable[[str], bool] = lambda _: True
    nth: int = 1
    times: int | None = 1
    matched: int = field(default=0, init=False)

    def acts_on(self, call: Call) -> bool:
        """Count a call and return whether the rule acts on it."""
        if (self.operations and call.operation not in self.operations) or not self.path(call.path):
            return False
        self.matched += 1
        return self.matched >= self.nth and (self.times is None or self.matched < self.nth + self.times)


def unavailable(call: Call) -> None:
    """Fail as a store that does not answer.

    Raises:
        UnavailableError: Always.
    """
    raise UnavailableError(
        "the store did not answer (injected)", remedy="try again", operation=call.operation, path=call.path
    )


class FaultyStore:
    """Any store, with a call log and faults on demand; without rules it changes nothing.

    Args:
        inner: The store that does the work.
    """

    def __init__(self, inner: ObjectStore) -> None:
        """Begin without rules and with an empty log."""
        self.inner = inner
        self.has_links = True
        """Whether ``link`` asks the inner store; a file system without links says no to each."""
        self.calls: list[Call] = []
        """All calls so far, in order; failed ones, too."""
        self._rules: list[Rule] = []
        self._lock = threading.Lock()

    def add(self, rule: Rule) -> Rule:
        """Put a rule into force."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def fail(
        self, *operations: str, path: Callable[[str], bool] = lambda _: True, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """Let calls fail with ``UnavailableError`` before they have any effect."""
        return self.add(Rule(unavailable, Moment.BEFORE, frozenset(operations), path, nth, times))

    def lose_reply(
        self, *operations: str, path: Callable[[str], bool] = lambda _: True, nth: int = 1, times: int | None = 1
    ) -> Rule:
        """Let calls have their effect and then fail with ``UnavailableError``."""
        return self.add(Rule(unavailable, Moment.AFTER, frozenset(operations), path, nth, times))

    def fail_randomly(self, rng: Rng, probability: float, *operations: str) -> None:
        """Let each call fail with a probability; half of the failures are lost replies."""

        def draw(call: Call) -> None:
            if rng.random() < probability / 2:
                unavailable(call)

        for moment in Moment:
            self.add(Rule(draw, moment, frozenset(operations), times=None))

    def heal(self) -> None:
        """Take back all rules; the log stays."""
        with self._lock:
            self._rules.clear()

    def count(self, *operations: str, path: Callable[[str], bool] = lambda _: True) -> int:
        """Return how many calls there were of these methods (all, if none is named)."""
        return sum(1 for call in self.calls if (not operations or call.operation in operations) and path(call.path))

    @property
    def uri(self) -> str:
        """The inner store's root."""
        return self.inner.uri

    @property
    def kind(self) -> StoreKind:
        """The inner store's kind."""
        return self.inner.kind

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The inner store's options."""
        return self.inner.storage_options

    def uri_of(self, path: str) -> str:
        """Return the address in the inner store."""
        return self.inner.uri_of(path)

    def get(self, path: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read a whole object."""
        return self._call("get", path, lambda: self.inner.get(path, max_bytes))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part of an object."""
        return self._call("get_range", path, lambda: self.inner.get_range(path, start, length))

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object."""
        return self._call("head", path, lambda: self.inner.head(path))

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe all objects below a directory; faults strike at the call, not at the first step."""
        return iter(self._call("list_objects", prefix, lambda: list(self.inner.list_objects(prefix))))

    def list_directories(self, prefix: str) -> list[str]:
        """Return the names of the directories directly below a directory."""
        return self._call("list_directories", prefix, lambda: self.inner.list_directories(prefix))

    def require_files(self, directories: Collection[str]) -> None:
        """Refuse directories that others must not open; not a call, since object stores are not asked."""
        self.inner.require_files(directories)

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing what is there."""
        self._call("put", path, lambda: self.inner.put(path, data))

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if nothing is there."""
        self._call("put_if_absent", path, lambda: self.inner.put_if_absent(path, data))

    def put_parts_if_absent(self, path: str, parts: Sequence[ObjectPart]) -> None:
        """Write several pieces as one object only if nothing is there."""
        self._call("put_parts_if_absent", path, lambda: self.inner.put_parts_if_absent(path, parts))

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Publish a local file only if nothing is there."""
        self._call("put_file_if_absent", path, lambda: self.inner.put_file_if_absent(path, source))

    def put_large(self, path: str, pieces: Iterable[bytes], size_bytes: int) -> None:
        """Write an object of any size."""
        self._call("put_large", path, lambda: self.inner.put_large(path, pieces, size_bytes))

    def link(self, path: str, source: str) -> bool:
        """Give an object a second name; never, if ``has_links`` is off."""
        return self._call("link", path, lambda: self.has_links and self.inner.link(path, source))

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._call("delete", path, lambda: self.inner.delete(path))

    def delete_directory(self, prefix: str) -> int:
        """Remove all objects below a directory."""
        return self._call("delete_directory", prefix, lambda: self.inner.delete_directory(prefix))

    def sync_directory(self, prefix: str) -> None:
        """Make everything below a directory durable."""
        self._call("sync_directory", prefix, lambda: self.inner.sync_directory(prefix))

    def sync_objects(self, paths: Collection[str]) -> None:
        """Make objects durable; one call in the log for each of them."""
        for path in sorted(paths):
            self._call("sync_objects", path, partial(self.inner.sync_objects, [path]))

    def staging_directory(self, path: str) -> Path:
        """Return the inner store's staging directory."""
        return self.inner.staging_directory(path)

    def _call(self, operation: str, path: str, effect: Callable[[], _Result]) -> _Result:
        call = Call(operation, path)
        with self._lock:
            self.calls.append(call)
            acting = [rule for rule in self._rules if rule.acts_on(call)]
        for rule in acting:
            if rule.moment is Moment.BEFORE:
                rule.action(call)
        result = effect()
        for rule in acting:
            if rule.moment is Moment.AFTER:
                rule.action(call)
        return result
