"""Reading tables for the page: bounded, concurrent, each with a deadline, and what was known stays known."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from memwal_core.clock import SystemClock
from memwal_core.errors import UnavailableError
from memwal_core.registry import RegisteredTable
from memwal_core.settings import PageSettings
from memwal_core.web.board import Board
from testkit.clock import ManualClock


def tables(number: int) -> list[RegisteredTable]:
    return [RegisteredTable(name=f"t{each}", uri=f"/t{each}") for each in range(number)]


class Store:
    """Counts what is read, and may hang or fail."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.at_once = self.most = 0
        self.hanging = threading.Event()
        self.hanging.set()
        self.fails: Callable[[str], BaseException | None] = lambda _name: None
        self.hangs: set[str] = set()
        self._lock = threading.Lock()

    def read(self, table: RegisteredTable) -> str:
        with self._lock:
            self.reads[table.name] += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        try:
            if table.name in self.hangs:
                self.hanging.wait()
            if (error := self.fails(table.name)) is not None:
                raise error
            return f"{table.name} {self.reads[table.name]}"
        finally:
            with self._lock:
                self.at_once -= 1


def board(store: Store, clock: ManualClock | SystemClock, **settings: float) -> Board[str]:
    return Board(store.read, PageSettings.model_validate({"patience_s": 60, "deadline_s": 60, **settings}), clock)


@pytest.mark.req("O1")
def test_two_hundred_tables_are_read_once_however_often_people_look() -> None:
    store, clock, fleet = Store(), ManualClock(), tables(200)
    shown = board(store, clock, parallel=8)

    first, again = shown.look(fleet), [shown.look(fleet) for _ in range(5)][-1]

    assert [each.view for each in first] == [each.view for each in again] == [f"{each.name} 1" for each in fleet]
    assert set(store.reads.values()) == {1}
    assert store.most <= 8

    clock.advance(31)
    assert [each.view for each in shown.look(fleet)] == [f"{each.name} 2" for each in fleet]
    assert store.reads.total() == 400


@pytest.mark.parametrize("number", [50, 500])
def test_p8_a_look_at_a_fleet_compares_no_table_with_the_others(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The first look at 3,000 tables compared each with all that waited: 9 s of processor time, and none was read."""
    compared = []

    def equals(one: RegisteredTable, other: object) -> bool:
        compared.append(one)
        return one is other

    monkeypatch.setattr(RegisteredTable, "__eq__", equals)
    shown = board(Store(), ManualClock(), parallel=8)

    assert all(each.view is not None for each in shown.look(tables(number)))
    assert not compared


@pytest.mark.req("O1")
def test_a_table_that_hangs_delays_no_other_and_shows_what_was_known_of_it() -> None:
    store, clock, fleet = Store(), SystemClock(), tables(9)
    shown = board(store, clock, parallel=1, patience_s=60, deadline_s=0.3, fresh_s=0)
    shown.look(fleet)
    store.hanging.clear()
    store.hangs = {"t0"}

    found = {each.table.name: each for each in shown.look(fleet)}
    try:
        assert {found[f"t{number}"].view for number in range(1, 9)} == {f"t{number} 2" for number in range(1, 9)}
        assert found["t0"].view == "t0 1"
        assert isinstance(found["t0"].error, UnavailableError)
        assert "has not answered" in str(found["t0"].error)
        reads = store.reads["t0"]
        shown.look(fleet)
        assert store.reads["t0"] == reads  # not asked again before it has answered
    finally:
        store.hanging.set()

    until = clock.monotonic() + 60
    while (late := shown.see(fleet[0])).error is not None and clock.monotonic() < until:
        pass
    assert late.error is None
    assert late.view in {"t0 2", "t0 3"}


def test_the_overview_does_not_wait_longer_than_its_patience() -> None:
    store, clock, fleet = Store(), SystemClock(), tables(3)
    store.hanging.clear()
    store.hangs = {"t1"}

    found = board(store, clock, parallel=3, patience_s=0.3).look(fleet)

    store.hanging.set()
    assert [each.is_awaited for each in found if each.table.name == "t1"] == [True]


@pytest.mark.parametrize("error", [UnavailableError("no answer", remedy="wait"), RuntimeError("a secret")])
def test_an_error_is_about_its_table_alone_and_keeps_what_was_known(error: BaseException) -> None:
    store, clock, fleet = Store(), ManualClock(), tables(3)
    shown = board(store, clock)
    shown.look(fleet)
    store.fails = lambda name: error if name == "t1" else None
    clock.advance(60)

    found = shown.look(fleet)

    assert [each.view for each in found] == ["t0 2", "t1 1", "t2 2"]
    assert [each.age_s for each in found] == [0, 60, 0]
    assert [each.error is None for each in found] == [True, False, True]
    assert "a secret" not in str(found[1].error)


def test_machine_out_of_threads_is_told_of_the_table_and_it_is_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page failed, and the table counted as one that does not answer until the servers began anew."""
    start, refused = threading.Thread.start, [True]

    def refuse(thread: threading.Thread) -> None:
        if refused.pop():
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    shown, [table] = board(Store(), ManualClock()), tables(1)

    assert "cannot be shown (RuntimeError)" in str(shown.look([table])[0].error)
    refused.append(False)
    assert shown.see(table).view == "t0 1"


def test_one_table_is_read_anew_whenever_it_is_opened() -> None:
    store, clock = Store(), ManualClock()
    shown, [table] = board(store, clock), tables(1)

    assert [shown.see(table).view for _ in range(3)] == ["t0 1", "t0 2", "t0 3"]


def test_no_more_than_the_newest_are_remembered() -> None:
    store, fleet = Store(), tables(5)
    shown = Board(store.read, PageSettings(), ManualClock(), remembered=2)
    for table in fleet:
        shown.see(table)

    assert len(shown._known) == 2


def test_tables_that_left_the_registry_are_forgotten() -> None:
    shown, fleet = board(Store(), ManualClock()), tables(3)
    shown.look(fleet)
    shown.look(fleet[:1])

    assert list(shown._known) == fleet[:1]
