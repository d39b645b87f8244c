"""Calls in threads, so many at once, where one that takes too long keeps its place from no other."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from memwal_core.clock import Clock

ResultT = TypeVar("ResultT")

POLL_S = 0.2
"""Seconds between two looks at the clock while whoever waits for calls sees none end."""


class StartedCall(Generic[ResultT]):
    """A call that waits for a place, runs or has ended.

    Attributes:
        future: What it returned or raised, panics of native code among it; ``RuntimeError`` if the machine has no
            thread for it.
        name: Of its thread.
        limit_s: Seconds after which it is overdue.
    """

    def __init__(self, name: str, call: Callable[[], ResultT], clock: Clock, limit_s: float) -> None:
        self.name = name
        self.future: Future[ResultT] = Future()
        self._call = call
        self._context = contextvars.copy_context()
        self._clock = clock
        self.limit_s = limit_s
        self._began: float | None = None
        self._ended: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether it had its place, be it that it has ended."""
        return self._began is not None

    @property
    def seconds(self) -> float:
        """What it took, or has taken until now; 0 before it begins."""
        if self._began is None:
            return 0.0
        return (self._clock.monotonic() if self._ended is None else self._ended) - self._began

    @property
    def is_overdue(self) -> bool:
        """Whether it takes, or took, as long as it may or longer."""
        return self.seconds >= self.limit_s

    def run(self) -> None:
        """Call in this thread."""
        self.future.set_running_or_notify_cancel()
        self._began = self._clock.monotonic()
        try:
            result = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001 - a panic is no Exception; whoever waits is told
            self._ended = self._clock.monotonic()
            self.future.set_exception(error)
        else:
            self._ended = self._clock.monotonic()
            self.future.set_result(result)


class AbandonableCalls(Generic[ResultT]):
    """Makes calls in threads, and gives the place of one that is overdue to the next. Thread-safe.

    A thread cannot be ended from outside: a call that is overdue goes on. A place is a thread, which makes one call
    after the other: hundreds wait without threads of their own.

    Args:
        clock: Tells how long a call takes.
        places: How many calls run at once, without those that are overdue.
        limit_s: Seconds after which a call is overdue.
    """

    def __init__(self, clock: Clock, places: int, limit_s: float) -> None:
        self._clock = clock
        self._places = places
        self._limit_s = limit_s
        self._waiting: deque[StartedCall[ResultT]] = deque()
        self._placed: set[StartedCall[ResultT]] = set()
        self._lock = threading.Lock()

    def start(self, name: str, call: Callable[[], ResultT], *, first: bool = False) -> StartedCall[ResultT]:
        """Make a call as soon as there is a place, in the context of who asks for it.

        Args:
            name: Of its thread.
            call: May raise any error, and may take for ever.
            first: Before all that wait.
        """
        started = StartedCall(name, call, self._clock, self._limit_s)
        with self._lock:
            if first:
                self._waiting.appendleft(started)
            else:
                self._waiting.append(started)
        self.fill()
        return started

    def fill(self) -> None:
        """Give places that are free, or whose calls are overdue, to those that wait. To be called while they wait."""
        with self._lock:
            refused, error = self._fill()
        for call in refused:  # Whoever is told may use this object.
            call.future.set_exception(error)

    def _fill(self) -> tuple[list[StartedCall[ResultT]], RuntimeError | None]:
        """Return the calls that will not be made, and why."""
        self._placed = {call for call in self._placed if not call.is_overdue}
        while self._waiting and len(self._placed) < self._places:
            call = self._next()
            # A daemon: the process ends although a call hangs.
            thread = threading.Thread(target=self._make_calls, args=(call,), name=call.name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The machine is out of threads.
                self._placed.remove(call)
                self._waiting.appendleft(call)
                if self._placed:
                    break
                # Nobody is there whose place they could get: they would wait for ever.
                refused, self._waiting = [*self._waiting], deque()
                return refused, error
        return [], None

    def _make_calls(self, call: StartedCall[ResultT] | None) -> None:
        while call is not None:
            threading.current_thread().name = call.name
            call.run()
            call = self._after(call)
        self.fill()  # If this one's place was lost, others may have lost theirs meanwhile.

    def _after(self, call: StartedCall[ResultT]) -> StartedCall[ResultT] | None:
        """Return the next call for the place of one that has ended; None if there is none, or the place was lost."""
        with self._lock:
            if call not in self._placed:
                return None
            self._placed.remove(call)
            return self._next() if self._waiting else None

    def _next(self) -> StartedCall[ResultT]:
        call = self._waiting.popleft()
        self._placed.add(call)
        return call
