"""When a table writer looks again whether the base table's schema has changed: beside its puts, while they go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memwal_core.clock import Clock
from memwal_core.errors import MemwalError
from memwal_core.writer.table_context import TableShape

_log = logging.getLogger(__name__)

LOOK_THREAD = "memwal-schema"

_AHEAD = 0.5
"""Share of the interval after which the next look begins beside the puts."""


class SchemaWatch:
    """Knows the shape of a table as of a look that began at most an interval ago. Safe to call from several threads.

    From half of the interval on, the next look runs in a thread, so that puts which come one after another do not wait
    for it; after a rest, the first one does.

    Args:
        interval_s: The longest time between a look and its use.
        in_background: Whether there may be a thread.
    """

    def __init__(self, look: Callable[[], TableShape], interval_s: float, clock: Clock, *, in_background: bool) -> None:
        """Look for the first time."""
        self._look = look
        self._interval_s = interval_s
        self._clock = clock
        self._in_background = in_background
        self._looking = threading.Lock()
        self._seen = self._looked()

    def shape(self, *, now: bool = False) -> TableShape:
        """Return the shape; ``now`` looks again however young the last look is. Raises what the look raises."""
        if now:
            with self._looking:
                self._seen = self._looked()
        elif self._age_s() >= self._interval_s:
            with self._looking:  # One may be under way; what it sees is as good.
                if self._age_s() >= self._interval_s:
                    self._seen = self._looked()
        elif self._in_background and self._age_s() > _AHEAD * self._interval_s:
            self._look_ahead()
        return self._seen[0]

    def _age_s(self) -> float:
        return self._clock.monotonic() - self._seen[1]

    def _looked(self) -> tuple[TableShape, float]:
        began = self._clock.monotonic()
        return self._look(), began

    def _look_ahead(self) -> None:
        if not self._looking.acquire(blocking=False):
            return
        try:
            threading.Thread(target=self._run_ahead, name=LOOK_THREAD, daemon=True).start()
        except RuntimeError:  # No thread is to be had: a later put looks.
            self._looking.release()

    def _run_ahead(self) -> None:
        try:
            self._seen = self._looked()
        except MemwalError as error:
            _log.info("the table's schema could not be looked at ahead of time [error=%s]", error)
        finally:
            self._looking.release()
