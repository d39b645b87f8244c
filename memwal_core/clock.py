"""Time as an argument: no other module of the package may ask the system for it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

_LAST_S = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""Early enough that anything may be added to it."""


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""That of ``time.monotonic`` stands still on Linux while a machine is suspended."""


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def now(self) -> datetime:
        """Return the wall time, timezone UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for measuring intervals."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the wall time, timezone UTC."""
        return datetime.now(tz=UTC)

    def monotonic(self) -> float:
        """Return the monotonic time in seconds, those in which the machine slept included.

        Other machines did not sleep: what this process held before may be theirs since.
        """
        return time.clock_gettime(_CLOCK)

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


def unix_millis(moment: datetime) -> int:
    """Return a wall time as Unix milliseconds."""
    return int(moment.timestamp() * 1000)


def at_millis(millis: float) -> datetime:
    """Return the UTC time of a Unix time in milliseconds; of one that no calendar has, 1970 or the year 9000.

    Such numbers come from files of others, and an error would stop everything that lists them.
    """
    return datetime.fromtimestamp(min(max(millis / 1000, 0.0), _LAST_S), tz=UTC)
