"""A clock that moves only when told to."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

DEFAULT_START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """Time that the test owns; ``sleep`` returns at once and moves it forward.

    Args:
        start: The first wall time, timezone UTC.
    """

    def __init__(self, start: datetime = DEFAULT_START) -> None:
        """Start at the given time, with the monotonic time at zero."""
        self._start = start
        self._elapsed_s = 0.0
        self._jump = timedelta()
        self._lock = threading.Lock()
        self.sleeps: list[float] = []
        """Seconds of each ``sleep`` so far, in order."""

    def now(self) -> datetime:
        """Return the wall time."""
        return self._start + timedelta(seconds=self._elapsed_s) + self._jump

    def monotonic(self) -> float:
        """Return the seconds since the start."""
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        """Record the wait and move time forward by it."""
        with self._lock:
            self.sleeps.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move wall and monotonic time forward.

        Raises:
            ValueError: The number is negative; see ``jump_wall_time``.
        """
        if seconds < 0:
            raise ValueError("monotonic time never goes back")
        with self._lock:
            self._elapsed_s += seconds

    def jump_wall_time(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP may; monotonic time goes on."""
        with self._lock:
            self._jump += timedelta(seconds=seconds)
