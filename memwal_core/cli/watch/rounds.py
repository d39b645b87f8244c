"""Rounds over all registered tables: concurrent, with a time limit, and each table for itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import replace

from memwal_core.cli.watch.exposition import Watched, WatchedFleet
from memwal_core.clock import Clock
from memwal_core.errors import MemwalError
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.jobs.health import Health
from memwal_core.redaction import redact
from memwal_core.registry import RegisteredTable, Registry

_log = logging.getLogger(__name__)

Examine = Callable[[RegisteredTable], Health]


class _Places:
    """So many look at once; one that takes longer than ``patience_s`` keeps its place from no other. Thread-safe."""

    def __init__(self, clock: Clock, number: int, patience_s: float) -> None:
        self._clock = clock
        self._number = number
        self._patience_s = patience_s
        self._taken: dict[object, float] = {}
        self._changed = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Wait for a place, and hold it."""
        holder = object()
        with self._changed:
            while len(self._taken) >= self._number:
                first, since = next(iter(self._taken.items()))
                left_s = since + self._patience_s - self._clock.monotonic()
                if left_s <= 0:
                    del self._taken[first]
                else:
                    self._changed.wait(left_s)
            self._taken[holder] = self._clock.monotonic()
        try:
            yield
        finally:
            with self._changed:
                self._taken.pop(holder, None)
                self._changed.notify()


class Watcher:
    """Knows the last state of each table. Thread-safe; changes no table.

    Args:
        load: Reads the registry; called in every round, so that changes of the file are followed.
        examine: Examines one table; may raise any error, and may take for ever.
        deadline_s: Seconds that a round waits. A table that takes longer counts as not examined, keeps no other
            waiting, and is not asked again before it has answered.
        concurrency: Tables that are examined at once.
        deep: Deep looks, whose findings are added to those of each round; None if there are none.
    """

    def __init__(
        self,
        load: Callable[[], Registry],
        examine: Examine,
        *,
        clock: Clock,
        deadline_s: float,
        concurrency: int,
        deep: DeepLooks | None = None,
    ) -> None:
        """Keep the parts; nothing is read."""
        self._load = load
        self._examine = examine
        self._clock = clock
        self._deadline_s = deadline_s
        self._places = _Places(clock, concurrency, deadline_s)
        self._places_of_silent = _Places(clock, concurrency, deadline_s)
        self._deep = deep
        self._busy: dict[str, Future[Watched]] = {}
        self._silent: set[str] = set()
        """Tables that took longer than the deadline when they were last examined."""
        self._entries: tuple[RegisteredTable, ...] = ()
        self._broken: tuple[Watched, ...] = ()
        self._fleet = WatchedFleet()
        self._lock = threading.Lock()

    @property
    def fleet(self) -> WatchedFleet:
        """What is known now."""
        with self._lock:
            return self._fleet

    @property
    def is_looking(self) -> bool:
        """Whether a table is being examined."""
        return not all(each.done() for each in self._busy.values()) or (
            self._deep is not None and self._deep.is_looking
        )

    def look(self, *, wait_for_deep: bool = False) -> WatchedFleet:
        """Examine every table, and return what is known then; wait for deep looks, too, if that is asked for."""
        problem = self._read_registry()
        before = {table.name: table for table in self.fleet.tables}
        self._begin([entry for entry in self._entries if entry.uri not in self._busy])
        if self._deep is not None:
            self._deep.begin(self._entries)
        wait([self._busy[entry.uri] for entry in self._entries], timeout=self._deadline_s)
        if self._deep is not None and wait_for_deep:
            self._deep.wait(self._deadline_s)
        tables = tuple(self._result(entry, before.get(entry.name, Watched(entry.name))) for entry in self._entries)
        with self._lock:
            self._fleet = WatchedFleet((*tables, *self._broken), self._clock.now(), problem)
            return self._fleet

    def _read_registry(self) -> str:
        try:
            registry = self._load()
        except MemwalError as error:
            _log.warning("the tables before are watched: %s", error)
            return error.what
        self._entries = registry.maintained
        self._broken = tuple(Watched(each.name, problem=each.why) for each in registry.broken)
        return ""

    def _begin(self, entries: Sequence[RegisteredTable]) -> None:
        def run(entry: RegisteredTable, future: Future[Watched], places: _Places) -> None:
            with places.one():
                future.set_running_or_notify_cancel()
                began = self._clock.monotonic()
                found = self._examined(entry)
                if self._clock.monotonic() - began < self._deadline_s:
                    self._silent.discard(entry.uri)
            future.set_result(found)

        for entry in entries:
            future = self._busy[entry.uri] = Future()
            places = self._places_of_silent if entry.uri in self._silent else self._places
            # One that hangs keeps neither the process from ending nor the next round from beginning.
            threading.Thread(
                target=run, args=(entry, future, places), name=f"memwal-watch-{entry.name}", daemon=True
            ).start()

    def _examined(self, entry: RegisteredTable) -> Watched:
        try:
            health = self._examine(entry)
        except MemwalError as error:
            return Watched(entry.name, problem=error.what)
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception; it is about this table alone
            return Watched(entry.name, problem=redact(str(error)))
        return Watched(entry.name, health, self._clock.now())

    def _result(self, entry: RegisteredTable, before: Watched) -> Watched:
        future = self._busy[entry.uri]
        if not future.done():
            if not future.running():
                return replace(before, problem="its turn has not come: other tables take long to answer")
            self._silent.add(entry.uri)
            return replace(before, problem=f"no answer in {self._deadline_s:g} s")
        del self._busy[entry.uri]
        found = future.result()
        if found.problem:
            _log.warning("not examined [table=%s]: %s", entry.name, found.problem)
            return replace(before, problem=found.problem)
        if self._deep is not None and found.health is not None:
            deep = self._deep.of(entry.uri)
            return replace(found, health=found.health.including(deep.found, deep.space))
        return found
