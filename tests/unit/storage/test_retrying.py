from __future__ import annotations

import pytest

from memwal_core.errors import ConflictError, UnavailableError
from memwal_core.settings import StorageSettings
from memwal_core.storage.retrying import Retrier, request_timeout_s
from testkit.clock import ManualClock
from testkit.rng import seeded_rng


class Flaky:
    """Fails a number of times, then answers."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.left = failures
        self.calls = 0
        self.error = error

    def __call__(self) -> str:
        self.calls += 1
        if self.left > 0:
            self.left -= 1
            raise self.error
        return "answer"


UNAVAILABLE = UnavailableError("down", remedy="wait")


def _retrier(clock: ManualClock, *, seed: int = 1, attempts: int = 6) -> Retrier:
    settings = StorageSettings(max_attempts=attempts, retry_wait_s=1, retry_wait_max_s=4)
    return Retrier(settings, clock, seeded_rng(seed))


def test_waits_double_up_to_the_longest_and_are_jittered_below_it() -> None:
    clock = ManualClock()

    assert _retrier(clock).run(Flaky(5, UNAVAILABLE)) == "answer"

    for wait, full in zip(clock.sleeps, [1, 2, 4, 4, 4], strict=True):
        assert full / 2 <= wait <= full
    assert len(set(clock.sleeps)) == 5


def test_same_seed_gives_the_same_waits() -> None:
    first, second, other = ManualClock(), ManualClock(), ManualClock()
    for clock, seed in ((first, 1), (second, 1), (other, 2)):
        _retrier(clock, seed=seed).run(Flaky(3, UNAVAILABLE))

    assert first.sleeps == second.sleeps != other.sleeps


def test_last_failure_is_raised_after_the_configured_attempts() -> None:
    flaky = Flaky(100, UNAVAILABLE)

    with pytest.raises(UnavailableError):
        _retrier(ManualClock(), attempts=4).run(flaky)

    assert flaky.calls == 4


def test_other_errors_are_not_retried() -> None:
    clock = ManualClock()
    flaky = Flaky(1, ConflictError("lost", remedy="read again"))

    with pytest.raises(ConflictError):
        _retrier(clock).run(flaky)

    assert (flaky.calls, clock.sleeps) == (1, [])


def test_many_attempts_do_not_overflow_the_wait() -> None:
    clock = ManualClock()
    settings = StorageSettings(max_attempts=50, retry_wait_s=60, retry_wait_max_s=600)

    Retrier(settings, clock, seeded_rng(1)).run(Flaky(49, UNAVAILABLE))

    assert max(clock.sleeps) <= 600


@pytest.mark.req("T6")
def test_reads_begin_no_attempt_that_could_end_after_their_time() -> None:
    clock, flaky = ManualClock(), Flaky(100, UNAVAILABLE)
    settings = StorageSettings(max_attempts=50, retry_wait_s=1, retry_wait_max_s=4, read_timeout_s=30)

    with pytest.raises(UnavailableError):
        Retrier(settings, clock, seeded_rng(1)).read(flaky)

    assert 1 < flaky.calls < 50
    assert sum(clock.sleeps) <= 30 - request_timeout_s(settings)
