"""Bounded retries of storage requests; time and randomness are arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import tenacity

from memwal_core.clock import Clock
from memwal_core.errors import UnavailableError
from memwal_core.rng import Rng
from memwal_core.settings import StorageSettings
from memwal_core.storage.patience import Patience, waited_for

_Result = TypeVar("_Result")


class Retrier:
    """Repeats requests while the store is unavailable.

    Waits double from ``retry_wait_s`` up to ``retry_wait_max_s``; each is shortened by up to a half at
    random, so that clients that failed together do not return together.
    """

    def __init__(self, settings: StorageSettings, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._patience = Patience(settings.read_timeout_s, clock)

    def run(self, attempt: Callable[[], _Result], limit_s: float = math.inf) -> _Result:
        """Call until it does not raise ``UnavailableError``, at most ``max_attempts`` times.

        Only for calls that do no harm when an earlier one took effect without a reply. No call begins later than
        ``limit_s`` seconds after the first.
        """
        began = self._clock.monotonic()

        def is_over(state: tenacity.RetryCallState) -> bool:
            begins = self._clock.monotonic() - began + state.upcoming_sleep
            return state.attempt_number >= self._settings.max_attempts or begins > limit_s

        retrying = tenacity.Retrying(
            stop=is_over,
            wait=self._wait_s,
            retry=tenacity.retry_if_exception_type(UnavailableError),
            sleep=self._clock.sleep,
            reraise=True,
        )
        return retrying(attempt)

    def read(self, attempt: Callable[[], _Result], what: str = "a store") -> _Result:
        """Do the same with a call that only reads, within ``read_timeout_s`` if each request keeps to its share.

        Raises:
            UnavailableError: Also if reads have been slow, one after the other, for as long as one may take.
        """
        self._patience.require()
        began, result = self._clock.monotonic(), None
        try:
            with waited_for(what):
                result = self.run(attempt, self._settings.read_timeout_s - request_timeout_s(self._settings))
            return result
        finally:
            self._patience.note(began, result)

    def write(self, attempt: Callable[[], _Result], what: str = "a store") -> _Result:
        """Do the same with a call that writes: one that got no answer is repeated once more.

        Raises:
            UnavailableError: Also at once, before anything is written, if the store has kept everybody waiting for as
                long as a read may take.
        """
        self._patience.require()
        began = self._clock.monotonic()
        try:
            with waited_for(what):
                return self.run(attempt, self._settings.read_timeout_s)
        except UnavailableError:
            # One that ends well may be slow because it is large.
            self._patience.note(began, None)
            raise

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        doubled = self._settings.retry_wait_s * 2.0 ** min(state.attempt_number - 1, 32)
        return min(doubled, self._settings.retry_wait_max_s) * self._rng.uniform(0.5, 1.0)


def request_timeout_s(settings: StorageSettings) -> float:
    """Return how long one request to a remote store may take; what is left of a read's time is for repeating it."""
    return settings.read_timeout_s * 2 / 3
