"""How long a remote store may keep its callers waiting, request after request, and who is told meanwhile.

The time limit of a read is that of one read. A store that answers each of them slowly, but within that, would hold a
command of a thousand reads for hours.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import UnavailableError

TOLD_AFTER_S = 5.0
"""Seconds after which a read that waits is told to people."""
_SLOW_SHARE = 1 / 6
"""Share of the time limit of a read from which it is a slow one; what it fetched is allowed for."""
_BYTES_PER_S = 256 << 10
_ITEMS_PER_S = 1000
_LOOK_S = 1.0

_log = logging.getLogger(__name__)


class Patience:
    """Ends when a store has been slow for the time that one read may take. Safe for threads.

    Slow reads, and writes without an answer, that follow each other are one spell; a pause of the length of a slow read
    ends it. So whoever backs off is let through again.

    Args:
        limit_s: Seconds in which a read ends, all attempts together.
    """

    def __init__(self, limit_s: float, clock: Clock) -> None:
        """Nothing was slow yet."""
        self._limit_s = limit_s
        self._slow_s = limit_s * _SLOW_SHARE
        self._clock = clock
        self._lock = threading.Lock()
        self._spell: tuple[float, float] | None = None
        self._slow_reads = 0

    def require(self) -> None:
        """Refuse to begin another request.

        Raises:
            UnavailableError: The store has answered slowly for too long.
        """
        with self._lock:
            if self._spell is None:
                return
            began, ended = self._spell
            if self._clock.monotonic() - ended > self._slow_s:
                self._spell = None
                return
            reads, lasted = self._slow_reads, ended - began
        if lasted >= self._limit_s:
            raise UnavailableError(
                "the store answers too slowly",
                remedy="back off and retry; MEMWAL_STORAGE__READ_TIMEOUT_S says how long is waited",
                slow_reads=reads,
                seconds=round(lasted, 1),
                limit_s=self._limit_s,
            )

    def note(self, began: float, result: object) -> None:
        """Take note of a request that ended now, and of what it fetched (None if it failed)."""
        ended = self._clock.monotonic()
        if ended - began <= self._slow_s + _allowance_s(result):
            return
        with self._lock:
            if self._spell is None or began - self._spell[1] > self._slow_s:
                self._spell, self._slow_reads = (began, ended), 0
            self._spell = (min(began, self._spell[0]), max(ended, self._spell[1]))
            self._slow_reads += 1


def _allowance_s(result: object) -> float:
    if isinstance(result, bytes):
        return len(result) / _BYTES_PER_S
    return len(result) / _ITEMS_PER_S if isinstance(result, list) else 0.0


@contextmanager
def waited_for(what: str) -> Iterator[None]:
    """Tell the log once if a block has not ended after five seconds, while it goes on."""
    watch = _watch(os.getpid())
    number = watch.begin(what)
    try:
        yield
    finally:
        watch.end(number)


class Watch:
    """One thread for all that waits, which ends when nothing has for a while."""

    def __init__(self, clock: Clock) -> None:
        """Start nothing yet."""
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[float, str]] = {}
        self._begun = 0
        self._thread: threading.Thread | None = None

    def begin(self, what: str) -> int:
        """Note that somebody waits; return a number for ``end``."""
        with self._lock:
            self._begun += 1
            self._waiting[self._begun] = (self._clock.monotonic(), what)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look, name="memwal-patience", daemon=True)
                self._thread.start()
            return self._begun

    def end(self, number: int) -> None:
        """Note that it is over."""
        with self._lock:
            self._waiting.pop(number, None)

    def _look(self) -> None:
        told: set[int] = set()
        idle_since = self._clock.monotonic()
        while True:
            self._clock.sleep(_LOOK_S)
            now = self._clock.monotonic()
            with self._lock:
                idle_since = now if self._waiting else idle_since
                if now - idle_since > TOLD_AFTER_S:
                    self._thread = None
                    return
                late = {number: what for number, (began, what) in self._waiting.items() if now - began >= TOLD_AFTER_S}
            for number in late.keys() - told:
                _log.warning("waiting for %s, for %g s now", late[number], TOLD_AFTER_S)
            told = set(late)


@cache
def _watch(_owner: int) -> Watch:
    """Return that of one process: a fork has no threads."""
    return Watch(SystemClock())
