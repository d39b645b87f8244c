"""Work on many subjects side by side, where a broken or hanging one delays no other."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from memwal_core.clock import Clock
from memwal_core.errors import UnavailableError

ResultT = TypeVar("ResultT")

_LOOK_S = 0.2
"""Seconds between two looks at the clock while nothing ends."""


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
            raise UnavailableError(
                "the process is asked to end", remedy="start it again; the next run of the job goes on where it was"
            )
        if self.has_passed:
            raise UnavailableError(
                "the time for this table is over",
                remedy="find in the log what takes so long, or raise fleet.deadline_s",
                seconds=self.seconds,
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
        stopped: Whether work that has begun must end before its next write.
    """

    def __init__(self, clock: Clock, stopped: Callable[[], bool] = lambda: False) -> None:
        self._clock = clock
        self._stopped = stopped
        self._given_up: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    @property
    def running(self) -> tuple[str, ...]:
        """Names whose work was given up and has not ended."""
        with self._lock:
            self._given_up = {name: thread for name, thread in self._given_up.items() if thread.is_alive()}
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
        ended: queue.SimpleQueue[EndedWork[ResultT]] = queue.SimpleQueue()
        running: dict[str, tuple[threading.Thread, Deadline]] = {}
        while waiting is not None or running:
            while waiting is not None and len(running) < parallel:
                name, piece = next(waiting, ("", None))
                if piece is None:
                    waiting = None
                elif name in busy:
                    yield EndedWork(name, is_running=True)
                else:
                    deadline = Deadline(self._clock, self._clock.monotonic() + deadline_s, deadline_s, self._stopped)
                    running[name] = _begun(name, piece, deadline, ended), deadline
            for finished in self._next(ended, running):
                running.pop(finished.name)
                yield finished

    def _next(
        self,
        ended: queue.SimpleQueue[EndedWork[ResultT]],
        running: Mapping[str, tuple[threading.Thread, Deadline]],
    ) -> list[EndedWork[ResultT]]:
        """Return what ended in a while, and what is given up now; not what was given up before."""
        found: list[EndedWork[ResultT]] = []
        with suppress(queue.Empty):
            found = [each for each in [ended.get(timeout=_LOOK_S)] if each.name in running]
        known = {each.name for each in found}
        overdue = {
            name: thread for name, (thread, deadline) in running.items() if name not in known and deadline.has_passed
        }
        with self._lock:
            self._given_up |= overdue
        return [*found, *(EndedWork(name, running[name][1].seconds, is_overdue=True) for name in overdue)]


def _begun(
    name: str, work: Work[ResultT], deadline: Deadline, ended: queue.SimpleQueue[EndedWork[ResultT]]
) -> threading.Thread:
    began = deadline.at - deadline.seconds

    def run() -> None:
        result, error = None, None
        try:
            result = work(deadline)
        except BaseException as raised:  # noqa: BLE001 - a panic is no Exception; whatever it is, it is told
            error = raised
        ended.put(EndedWork(name, deadline.clock.monotonic() - began, result, error))

    context = contextvars.copy_context()
    # A daemon: the process ends although a table hangs.
    thread = threading.Thread(target=context.run, args=(run,), name=f"memwal-fleet-{name}", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # The machine is out of threads.
        ended.put(EndedWork(name, error=error))
    return thread
