"""A store that answers each read slowly, but in time, holds nobody for ever."""

from __future__ import annotations

import logging
import time

import pytest

from memwal_core.errors import UnavailableError
from memwal_core.settings import StorageSettings
from memwal_core.storage.patience import Watch
from memwal_core.storage.retrying import Retrier
from testkit.clock import ManualClock
from testkit.rng import seeded_rng

pytestmark = pytest.mark.req("T6")


class Slow:
    """Answers reads after some seconds."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.reads = 0
        self.retrier = Retrier(StorageSettings(read_timeout_s=30), clock, seeded_rng(1))

    def read(self, seconds: float, answer: object = b"") -> object:
        def attempt() -> object:
            self.reads += 1
            self.clock.advance(seconds)
            return answer

        return self.retrier.read(attempt)

    def read_all(self, *seconds: float) -> None:
        for each in seconds * 500:
            self.read(each)


@pytest.mark.parametrize(("each_s", "most"), [(6, 5), (19, 2), (29, 2)])
def test_reads_that_are_all_slow_end_after_the_time_of_one(each_s: float, most: int) -> None:
    slow = Slow(ManualClock())
    began = slow.clock.monotonic()

    with pytest.raises(UnavailableError, match="too slowly") as caught:
        slow.read_all(each_s)

    assert slow.reads == most
    assert slow.clock.monotonic() - began < 2 * 30
    assert caught.value.facts["slow_reads"] == most


def test_a_fast_answer_in_between_does_not_help() -> None:
    slow = Slow(ManualClock())

    with pytest.raises(UnavailableError, match="too slowly"):
        slow.read_all(6, 0.1)

    assert slow.reads < 12


def test_who_backs_off_is_let_through_again() -> None:
    slow = Slow(ManualClock())
    with pytest.raises(UnavailableError):
        slow.read_all(19)

    with pytest.raises(UnavailableError):
        slow.read(0)  # At once.
    slow.clock.advance(6)

    assert slow.read(0.1, b"answer") == b"answer"
    slow.read_all(4.9)  # As slow as may be.


@pytest.mark.parametrize(("answer", "seconds"), [(b"x" * (8 << 20), 30), ([0] * 20_000, 20)])
def test_a_large_answer_may_take_its_time(answer: object, seconds: float) -> None:
    slow = Slow(ManualClock())

    for _ in range(20):
        slow.read(seconds, answer)

    assert slow.reads == 20


def test_a_store_that_is_silent_is_waited_for_once() -> None:
    clock = ManualClock()
    slow = Slow(clock)

    def silent() -> None:
        clock.advance(20)
        raise UnavailableError("down", remedy="wait")

    began = clock.monotonic()
    for _ in range(100):
        with pytest.raises(UnavailableError):
            slow.retrier.read(silent)

    assert clock.monotonic() - began < 2 * 30


def test_what_is_waited_for_is_told_after_five_seconds_and_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()  # Sleeping takes no time, and lets time pass.
    watch = Watch(clock)
    with caplog.at_level(logging.WARNING):
        number = watch.begin("s3://bucket/table/_mem_wal")
        until = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < until:
            time.sleep(0.001)
        told_at = clock.monotonic()
        while clock.monotonic() < told_at + 5 and time.monotonic() < until:
            time.sleep(0.001)
        watch.end(number)

    assert caplog.messages == ["waiting for s3://bucket/table/_mem_wal, for 5 s now"]


class Silent:
    """Takes writes, and answers none of them."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.requests = 0
        self.retrier = Retrier(StorageSettings(read_timeout_s=30), clock, seeded_rng(1))

    def write(self) -> None:
        def attempt() -> None:
            self.requests += 1
            self.clock.advance(20)
            raise UnavailableError("the store did not answer", remedy="try again")

        self.retrier.write(attempt)


def test_write_without_an_answer_is_repeated_once_and_others_end_at_once() -> None:
    """Before, each write took five requests of twenty seconds, and a command made several of them."""
    silent = Silent(ManualClock())
    began = silent.clock.monotonic()

    with pytest.raises(UnavailableError, match="did not answer"):
        silent.write()
    for _ in range(10):
        with pytest.raises(UnavailableError, match="too slowly"):
            silent.write()

    assert silent.requests == 2
    assert silent.clock.monotonic() - began < 41


def test_write_is_let_through_after_a_pause_and_repeated_while_the_store_refuses_at_once() -> None:
    silent = Silent(ManualClock())
    with pytest.raises(UnavailableError):
        silent.write()
    silent.clock.advance(6)
    answers: list[Exception | None] = [UnavailableError("busy", remedy="try again")] * 4

    def attempt() -> str:
        if answers and (error := answers.pop()) is not None:
            raise error
        return "written"

    assert silent.retrier.write(attempt) == "written"
