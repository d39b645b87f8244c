"""Looks at many tables side by side, so many at once, where one that is silent keeps no other waiting."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.registry import RegisteredTable

FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class _Turn:
    """A look that waits for a place."""

    name: str
    run: Callable[[], object]
    refuse: Callable[[Exception], object]


class _Places:
    """So many look at once; one that takes longer than ``patience_s`` keeps its place from no other. Thread-safe.

    A place is a thread, which takes one turn after the other: hundreds of tables wait without threads of their own.
    """

    def __init__(self, clock: Clock, number: int, patience_s: float) -> None:
        self._clock = clock
        self._number = number
        self._patience_s = patience_s
        self._taken: dict[object, float] = {}
        self._waiting: deque[_Turn] = deque()
        self._changed = threading.Lock()

    def add(self, turn: _Turn) -> None:
        """Let a look wait for its turn."""
        with self._changed:
            self._waiting.append(turn)

    def fill(self) -> None:
        """Give the places that are free, or held for too long, to those that wait."""
        with self._changed:
            now = self._clock.monotonic()
            self._taken = {each: since for each, since in self._taken.items() if now - since < self._patience_s}
            for _ in range(min(self._number - len(self._taken), len(self._waiting))):
                holder = object()
                # One that hangs keeps neither the process from ending nor the next round from beginning.
                thread = threading.Thread(target=self._take_turns, args=(holder,), daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # The machine is out of threads.
                    self._refuse(error)
                    return
                self._taken[holder] = now

    def _refuse(self, error: RuntimeError) -> None:
        """Let all who wait know if nobody is there whose place they could get: they would wait for ever."""
        while self._waiting and not self._taken:
            self._waiting.popleft().refuse(error)

    def _take_turns(self, holder: object) -> None:
        while True:
            with self._changed:
                if holder not in self._taken:
                    return  # It took so long that another has its place.
                if not self._waiting:
                    del self._taken[holder]
                    return
                turn = self._waiting.popleft()
                self._taken[holder] = self._clock.monotonic()
            threading.current_thread().name = turn.name
            turn.run()


class Looks(Generic[FoundT]):
    """Looks at tables in threads. For one caller, whom no table keeps waiting, and who begins again and again.

    Args:
        look: Looks at one table; may raise any error, and may take for ever.
        at_once: How many look at once. Tables that took longer than the patience have places of their own.
        patience_s: Seconds after which one that has its place is silent.
        called: Begins the names of the threads.
    """

    def __init__(
        self, look: Callable[[RegisteredTable], FoundT], *, clock: Clock, at_once: int, patience_s: float, called: str
    ) -> None:
        self._look = look
        self._clock = clock
        self._patience_s = patience_s
        self._called = called
        self._places = _Places(clock, at_once, patience_s)
        self._places_of_silent = _Places(clock, at_once, patience_s)
        self._busy: dict[str, Future[FoundT]] = {}
        self._silent: set[str] = set()
        """Tables that took longer than the patience when they were last looked at."""

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return not all(each.done() for each in tuple(self._busy.values()))

    def is_busy(self, uri: str) -> bool:
        """Return whether a look at a table is under way, or has ended and was not taken."""
        return uri in self._busy

    def begin(self, entries: Iterable[RegisteredTable]) -> None:
        """Look at tables, but for those at which a look is under way, or has ended and was not taken."""
        for entry in entries:
            if entry.uri not in self._busy:
                self._add(entry)
        for places in (self._places, self._places_of_silent):
            places.fill()

    def keep(self, uris: Collection[str]) -> None:
        """Forget what looks at other tables have found: it is old when they come back."""
        self._busy = {uri: future for uri, future in self._busy.items() if uri in uris or not future.done()}
        self._silent.intersection_update(uris)

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks under way."""
        wait(tuple(self._busy.values()), timeout=timeout_s)

    def take(self, uri: str) -> Future[FoundT] | None:
        """Return the look at a table if it has ended, and keep it no more."""
        future = self._busy.get(uri)
        if future is None or not future.done():
            return None
        return self._busy.pop(uri)

    def given_up(self, uri: str) -> str:
        """Say why nothing came of a look that is under way; from now on, the table takes no place from others."""
        if not self._busy[uri].running():
            return "its turn has not come: other tables take long to answer"
        self._silent.add(uri)
        return f"no answer in {self._patience_s:g} s"

    def _add(self, entry: RegisteredTable) -> None:
        future = self._busy[entry.uri] = Future[FoundT]()
        places = self._places_of_silent if entry.uri in self._silent else self._places

        def run() -> None:
            future.set_running_or_notify_cancel()
            began = self._clock.monotonic()
            try:
                end = partial(future.set_result, self._look(entry))
            except BaseException as error:  # noqa: BLE001 - a panic is no Exception; it is about this table alone
                end = partial(future.set_exception, error)
            if self._clock.monotonic() - began < self._patience_s:
                self._silent.discard(entry.uri)
            end()

        name, context = f"memwal-{self._called}-{entry.name}", contextvars.copy_context()
        places.add(_Turn(name, partial(context.run, run), future.set_exception))
