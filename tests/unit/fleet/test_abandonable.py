"""Calls in threads: bounded, and one that hangs keeps its place from no other, also where threads are scarce."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from memwal_core.fleet.abandonable import AbandonableCalls
from testkit.clock import ManualClock

pytestmark = pytest.mark.req("O1", "O6")

LIMIT_S = 10


class Gate:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.opened = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.opened.wait(60)
        return "late"


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


def test_overdue_call_loses_its_place_and_what_it_returns_later_is_kept(gate: Gate) -> None:
    clock = ManualClock()
    calls = AbandonableCalls[str](clock, 1, LIMIT_S)
    hanging, other = calls.start("hanging", gate), calls.start("other", lambda: "other")
    assert gate.begun.wait(60)
    calls.fill()
    assert (hanging.is_overdue, other.has_begun) == (False, False)

    clock.advance(LIMIT_S)
    assert hanging.is_overdue
    calls.fill()

    assert other.future.result(60) == "other"
    gate.opened.set()
    assert hanging.future.result(60) == "late"
    assert (hanging.is_overdue, hanging.seconds) == (True, LIMIT_S)


def test_call_that_ends_late_lets_others_have_the_places_of_those_that_hang(gate: Gate) -> None:
    clock, second = ManualClock(), Gate()
    calls = AbandonableCalls[str](clock, 1, LIMIT_S)
    calls.start("first", gate)
    assert gate.begun.wait(60)
    clock.advance(LIMIT_S)
    calls.start("second", second)
    assert second.begun.wait(60)
    waiting = calls.start("waiting", lambda: "waiting")
    clock.advance(LIMIT_S)
    gate.opened.set()

    assert waiting.future.result(60) == "waiting"
    second.opened.set()


def test_calls_wait_in_their_order_and_are_made_in_the_context_of_who_asked(gate: Gate) -> None:
    asker = contextvars.ContextVar[str]("asker")
    made: list[tuple[str, str]] = []
    calls = AbandonableCalls[object](ManualClock(), 1, LIMIT_S)
    calls.start("hanging", gate)
    waiting = []
    for name, is_first in (("b", False), ("c", False), ("a", True)):
        asker.set(f"asked for {name}")
        call = partial(lambda name: made.append((name, asker.get())), name)
        waiting.append(calls.start(name, call, first=is_first))
    gate.opened.set()
    for each in waiting:
        each.future.result(60)

    assert made == [("a", "asked for a"), ("b", "asked for b"), ("c", "asked for c")]


def test_machine_out_of_threads_refuses_a_call_unless_it_gets_the_place_of_another(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError(f"can't start thread {thread.name}")

    calls = AbandonableCalls[str](ManualClock(), 2, LIMIT_S)
    calls.start("hanging", gate)
    assert gate.begun.wait(60)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    patient = calls.start("patient", lambda: "made")
    assert not patient.future.done()
    gate.opened.set()
    assert patient.future.result(60) == "made"

    alone = AbandonableCalls[str](ManualClock(), 1, LIMIT_S).start("alone", gate)
    assert "alone" in str(alone.future.exception(0))
    assert (alone.has_begun, alone.seconds) == (False, 0)
