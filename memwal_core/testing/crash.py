"""Crashes at named places in the code under test."""

from __future__ import annotations

import threading
from collections import Counter


class SimulatedCrash(BaseException):
    """The process is meant to have died here.

    Not an ``Exception``, so that no error handling under test can survive it.
    """

    def __init__(self, name: str) -> None:
        """Keep the place."""
        super().__init__(name)
        self.name = name


class CrashPoints:
    """The crash points of one component; an object of this class without armed points does nothing.

    Components take ``CrashPoints.reach`` as a plain ``Callable[[str], None]``, so that production
    code knows nothing of this module.
    """

    def __init__(self) -> None:
        """Begin with nothing armed."""
        self._armed: dict[str, int] = {}
        self._reached: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def reached(self) -> dict[str, int]:
        """How often each point was reached; tests assert that a point exists at all."""
        with self._lock:
            return dict(self._reached)

    def arm(self, name: str, *, nth: int = 1) -> None:
        """Crash when the point is reached for the ``nth`` time from now, once."""
        with self._lock:
            self._armed[name] = self._reached[name] + nth

    def disarm(self) -> None:
        """Take back everything armed."""
        with self._lock:
            self._armed.clear()

    def reach(self, name: str) -> None:
        """Pass a point.

        Raises:
            SimulatedCrash: The point is armed, and this is the call it was armed for.
        """
        with self._lock:
            self._reached[name] += 1
            if self._armed.get(name) != self._reached[name]:
                return
            del self._armed[name]
        raise SimulatedCrash(name)
