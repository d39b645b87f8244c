"""Failpoints that do something: end the process, or call a function."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Self

from memwal_core.failpoints import Failpoint, Failpoints


class SimulatedCrash(BaseException):
    """The process is meant to have died here.

    Not an ``Exception``, so that no error handling under test can survive it.
    """

    def __init__(self, name: str) -> None:
        """Keep the place."""
        super().__init__(name)
        self.name = name


class CallingFailpoints(Failpoints):
    """Call a function with the name of each place that is hit.

    Args:
        action: The function.
    """

    def __init__(self, action: Callable[[Failpoint], object]) -> None:
        """Keep the function."""
        self._action = action

    def hit(self, place: Failpoint) -> None:
        """Call the function."""
        self._action(place)


class ArmedFailpoints(Failpoints):
    """Crash, or call a function, at armed places. Safe to use from several threads."""

    def __init__(self) -> None:
        """Begin with nothing armed."""
        self._armed: dict[str, tuple[int, Callable[[], object] | None]] = {}
        self._hits: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def hits(self) -> Mapping[str, int]:
        """How often each place was hit; tests assert that a place exists at all."""
        with self._lock:
            return dict(self._hits)

    def arm(self, place: Failpoint, action: Callable[[], object] | None = None, *, nth: int = 1) -> Self:
        """Act when a place is hit for the ``nth`` time from now, once.

        Args:
            place: Where.
            action: What to call; None = crash.
            nth: Hits to count from now.

        Returns:
            These failpoints.
        """
        with self._lock:
            self._armed[place] = self._hits[place] + nth, action
        return self

    def hit(self, place: Failpoint) -> None:
        """Pass a place.

        Raises:
            SimulatedCrash: The place is armed to crash, and this is the hit it was armed for.
        """
        with self._lock:
            self._hits[place] += 1
            due, action = self._armed.get(place, (0, None))
            if due != self._hits[place]:
                return
            del self._armed[place]
        if action is None:
            raise SimulatedCrash(place)
        action()
