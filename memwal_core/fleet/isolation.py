"""Work on many subjects side by side, where a broken or hanging one delays no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.errors import UnavailableError
from memwal_core.fleet.abandonable import POLL_S, AbandonableCalls, StartedCall

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Deadline:
    """When work that runs is given up."""

    clock: Clock
    at: float
    seconds: float
    stopped: Callable[[], bool] = lambda: False

    @property
    def has_passed(self) -> bool:
        """Whether it is too late to begin anything."""
        return self.clock.monotonic() >= self.at

    def check(self) -> None:
        """Refuse to begin anything more.

        Raises:
            UnavailableError: It has passed, or the process is asked to end.
        """
        if self.stopped():
            raise asked_to_end()
        if self.has_passed:
            raise UnavailableError(
                "the time for this table is over",
                remedy="find in the log what takes so long, or raise fleet.deadline_s",
                seconds=self.seconds,
            )


def asked_to_end() -> UnavailableError:
    """Return what keeps a process from its work that is to end."""
    return UnavailableError(
        "the process is asked to end", remedy="start it again; the next run of the job goes on where it was"
    )


Work = Callable[[Deadline], ResultT]


@dataclass(frozen=True, slots=True)
class EndedWork(Generic[ResultT]):
    """What became of one piece of work.

    Attributes:
        seconds: Until it ended, or until it was given up.
        result: What it returned; None if it returned nothing.
        error: What it raised, panics of native code among it; None if it raised nothing.
        is_running: Whether it did not begin, because earlier work of that name has not ended.
    """

    name: str
    seconds: float = 0.0
    result: ResultT | None = None
    error: BaseException | None = None
    is_overdue: bool = False
    is_running: bool = False


class Isolation:
    """Runs work in threads of its own, and does not wait for one that hangs. Thread-safe.

    A thread cannot be ended from outside. One that is given up goes on, ``Deadline`` keeps it from beginning anything
    more, and work of the same name does not begin before it has ended.

    Args:
        stopped: Whether work that has begun must begin nothing more.
    """

    def __init__(self, clock: Clock, stopped: Callable[[], bool] = lambda: False) -> None:
        self._clock = clock
        self._stopped = stopped
        self._given_up: dict[str, StartedCall[Any]] = {}
        self._lock = threading.Lock()

    @property
    def running(self) -> tuple[str, ...]:
        """Names whose work was given up and has not ended."""
        with self._lock:
            self._given_up = {name: call for name, call in self._given_up.items() if not call.future.done()}
            return tuple(self._given_up)

    def run(
        self, work: Iterable[tuple[str, Work[ResultT]]], *, parallel: int, deadline_s: float
    ) -> Iterator[EndedWork[ResultT]]:
        """Do all work, and yield each piece when it has ended or is given up.

        Args:
            work: Names and pieces. Whoever keeps the next one waiting keeps the others running, but delays what is
                yielded of them.
            parallel: How many pieces run at once, without those that were given up.
            deadline_s: Seconds from its own beginning after which a piece is given up.
        """
        busy = set(self.running)
        waiting: Iterator[tuple[str, Work[ResultT]]] | None = iter(work)
        calls = AbandonableCalls[ResultT](self._clock, parallel, deadline_s)
        running: dict[str, StartedCall[ResultT]] = {}
        while waiting is not None or running:
            while waiting is not None and len(running) < parallel:
                name, piece = next(waiting, ("", None))
                if piece is None:
                    waiting = None
                elif name in busy:
                    yield EndedWork(name, is_running=True)
                else:
                    running[name] = calls.start(f"memwal-fleet-{name}", partial(self._do, piece, deadline_s))
            ready = next((name for name, call in running.items() if call.future.done() or call.is_overdue), None)
            if ready is not None:
                yield self._end(ready, running.pop(ready))
            elif running:
                wait([call.future for call in running.values()], POLL_S, FIRST_COMPLETED)
                calls.fill()

    def _do(self, work: Work[ResultT], deadline_s: float) -> ResultT:
        return work(Deadline(self._clock, self._clock.monotonic() + deadline_s, deadline_s, self._stopped))

    def _end(self, name: str, call: StartedCall[ResultT]) -> EndedWork[ResultT]:
        if not call.future.done():
            with self._lock:
                self._given_up[name] = call
            return EndedWork(name, call.limit_s, is_overdue=True)
        error = call.future.exception()
        return EndedWork(name, call.seconds, None if error is not None else call.future.result(), error)
