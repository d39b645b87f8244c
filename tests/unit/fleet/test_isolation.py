"""Work side by side: bounded, each piece with a deadline, and none waits for one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from memwal_core.errors import UnavailableError
from memwal_core.fleet.isolation import Deadline, Isolation
from testkit.clock import ManualClock

pytestmark = pytest.mark.req("O1", "O6")


@contextmanager
def hanging(clock: ManualClock, seconds: float) -> Iterator[tuple[partial, threading.Event]]:
    """Work that lets its deadline pass, and then hangs until the block ends."""
    release = threading.Event()

    def hang(deadline: Deadline) -> str:
        clock.advance(seconds)
        assert release.wait(60)
        with pytest.raises(UnavailableError, match="time for this table is over"):
            deadline.check()
        return "late"

    try:
        yield hang, release
    finally:
        release.set()


def test_work_that_hangs_is_given_up_and_the_rest_is_done():
    clock = ManualClock()
    with hanging(clock, 10) as (hang, _):
        isolation = Isolation(clock)
        work = {"a": hang, "b": lambda _: "b", "c": lambda _: "c"}

        ended = {each.name: each for each in isolation.run(work.items(), parallel=1, deadline_s=10)}

        assert [ended["b"].result, ended["c"].result] == ["b", "c"]
        assert (ended["a"].is_overdue, ended["a"].seconds, ended["a"].result) == (True, 10, None)
        assert isolation.running == ("a",)


def test_work_that_was_given_up_does_not_begin_again_before_it_has_ended():
    clock = ManualClock()
    isolation = Isolation(clock)
    with hanging(clock, 10) as (hang, release):
        list(isolation.run({"a": hang}.items(), parallel=1, deadline_s=10))
        again = {
            each.name: each for each in isolation.run({"a": hang, "b": lambda _: 1}.items(), parallel=2, deadline_s=10)
        }
        assert (again["a"].is_running, again["b"].result) == (True, 1)
        release.set()
        for thread in threading.enumerate():
            if thread.name == "memwal-fleet-a":
                thread.join(60)

    assert isolation.running == ()
    [last] = isolation.run({"a": lambda _: 2}.items(), parallel=1, deadline_s=10)
    assert last.result == 2


def test_errors_and_panics_are_of_the_work_alone():
    class PanicError(BaseException):
        """As native code raises them: no ``Exception``."""

    def fail(error: BaseException, _: Deadline) -> None:
        raise error

    work = {"a": partial(fail, PanicError("index out of bounds")), "b": partial(fail, ValueError("x"))}

    ended = {each.name: each for each in Isolation(ManualClock()).run(work.items(), parallel=2, deadline_s=10)}

    assert {name: str(each.error) for name, each in ended.items()} == {"a": "index out of bounds", "b": "x"}


def test_no_more_run_at_once_than_allowed():
    lock, running, most = threading.Lock(), [0], [0]

    def work(_: Deadline) -> bool:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        threading.Event().wait(0.001)
        with lock:
            running[0] -= 1
        return True

    ended = list(Isolation(ManualClock()).run({str(n): work for n in range(20)}.items(), parallel=3, deadline_s=10))

    assert len(ended) == 20
    assert most[0] <= 3
