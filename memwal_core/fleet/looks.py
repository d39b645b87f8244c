"""Looks at many tables side by side, so many at once, where one that is silent keeps no other waiting."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.fleet.abandonable import AbandonableCalls, StartedCall
from memwal_core.registry import RegisteredTable

FoundT = TypeVar("FoundT")


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
        self._patience_s = patience_s
        self._called = called
        self._calls = AbandonableCalls[FoundT](clock, at_once, patience_s)
        self._calls_of_silent = AbandonableCalls[FoundT](clock, at_once, patience_s)
        self._busy: dict[str, StartedCall[FoundT]] = {}
        self._silent: set[str] = set()
        """Tables that took longer than the patience when they were last looked at."""

    @property
    def is_looking(self) -> bool:
        """Whether a look is under way."""
        return not all(each.future.done() for each in tuple(self._busy.values()))

    def is_busy(self, uri: str) -> bool:
        """Return whether a look at a table is under way, or has ended and was not taken."""
        return uri in self._busy

    def begin(self, entries: Iterable[RegisteredTable]) -> None:
        """Look at tables, but for those at which a look is under way, or has ended and was not taken."""
        for entry in entries:
            if entry.uri not in self._busy:
                self._add(entry)
        for calls in (self._calls, self._calls_of_silent):
            calls.fill()

    def keep(self, uris: Collection[str]) -> None:
        """Forget what looks at other tables have found: it is old when they come back."""
        self._busy = {uri: call for uri, call in self._busy.items() if uri in uris or not call.future.done()}
        self._silent.intersection_update(uris)

    def wait(self, timeout_s: float) -> None:
        """Wait for the looks under way."""
        wait([call.future for call in tuple(self._busy.values())], timeout=timeout_s)

    def take(self, uri: str) -> Future[FoundT] | None:
        """Return the look at a table if it has ended, and keep it no more."""
        call = self._busy.get(uri)
        if call is None or not call.future.done():
            return None
        if call.has_begun and not call.is_overdue:
            self._silent.discard(uri)
        return self._busy.pop(uri).future

    def given_up(self, uri: str) -> str:
        """Say why nothing came of a look that is under way; from now on, the table takes no place from others."""
        if not self._busy[uri].has_begun:
            return "its turn has not come: other tables take long to answer"
        self._silent.add(uri)
        return f"no answer in {self._patience_s:g} s"

    def _add(self, entry: RegisteredTable) -> None:
        calls = self._calls_of_silent if entry.uri in self._silent else self._calls
        self._busy[entry.uri] = calls.start(f"memwal-{self._called}-{entry.name}", partial(self._look, entry))
