"""Rounds over all registered tables: concurrent, with a time limit, and each table for itself."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from memwal_core.cli.watch.exposition import Watched, WatchedFleet
from memwal_core.clock import Clock
from memwal_core.errors import MemwalError
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.fleet.looks import Looks
from memwal_core.observe.health import Health
from memwal_core.redaction import redact
from memwal_core.registry import RegisteredTable, Registry, tables_left

_log = logging.getLogger(__name__)

Examine = Callable[[RegisteredTable], Health]


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
        self._looks = Looks(self._examined, clock=clock, at_once=concurrency, patience_s=deadline_s, called="watch")
        self._deep = deep
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
        return self._looks.is_looking or (self._deep is not None and self._deep.is_looking)

    def look(self, *, wait_for_deep: bool = False) -> WatchedFleet:
        """Examine every table, and return what is known then; wait for deep looks, too, if that is asked for."""
        problem = self._read_registry()
        before = {table.name: table for table in self.fleet.tables}
        registered = {entry.uri for entry in self._entries}
        self._looks.keep(registered)
        self._looks.begin(self._entries)
        if self._deep is not None:
            self._deep.keep(registered)
            self._deep.begin(self._entries)
        self._looks.wait(self._deadline_s)
        if self._deep is not None and wait_for_deep:
            self._deep.wait(self._deadline_s)
        tables = tuple(self._result(entry, before.get(entry.name, Watched(entry.name))) for entry in self._entries)
        with self._lock:
            ended, ended_s = self._clock.now(), self._clock.monotonic()
            self._fleet = WatchedFleet((*tables, *self._broken), ended, ended_s, problem)
            return self._fleet

    def _read_registry(self) -> str:
        try:
            registry = self._load()
        except MemwalError as error:
            if error.what != self.fleet.registry_problem:
                _log.warning("the tables before are watched: %s", error)
            return error.what
        if left := tables_left(self._entries, registry):
            _log.warning("not watched any more, because the registry does not name them: %s", ", ".join(left))
        self._entries = registry.maintained
        self._broken = tuple(Watched(each.name, problem=each.why) for each in registry.broken)
        return ""

    def _examined(self, entry: RegisteredTable) -> Watched:
        return Watched.of(entry.name, self._examine(entry), self._clock.now())

    def _result(self, entry: RegisteredTable, before: Watched) -> Watched:
        look = self._looks.take(entry.uri)
        error = look.exception() if look is not None else None
        if look is None:
            found = replace(before, problem=self._looks.given_up(entry.uri))
        elif error is not None:
            found = replace(before, problem=error.what if isinstance(error, MemwalError) else redact(str(error)))
            if found.problem != before.problem:
                _log.warning("not examined [table=%s]: %s", entry.name, found.problem)
        else:
            found = replace(look.result(), name=entry.name)  # It may have another name since the look began.
        return self._with_deep(entry, found, is_new=look is not None and error is None)

    def _with_deep(self, entry: RegisteredTable, found: Watched, *, is_new: bool) -> Watched:
        if self._deep is None:
            return found
        deep = self._deep.of(entry.uri)
        if is_new and found.judgement is not None:
            found = replace(found, judgement=found.judgement.including(deep.found, deep.space))
        return replace(found, deep=deep)
