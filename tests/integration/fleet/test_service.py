"""The service maintains what is due until it is stopped, whatever single tables do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from memwal_core.cli.maintain.exposition import exposition, service_health
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.fleet import FleetRequest, FleetService, RoundEnd, TableRound
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.registry import BrokenEntry, RegisteredTable, Registry
from memwal_core.settings import FleetSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

PATIENCE_S = 60.0


@dataclass(slots=True)
class Said:
    """What the service told, and a way to wait for it."""

    rounds: list[TableRound] = field(default_factory=list)
    news: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, found: TableRound) -> None:
        with self.news:
            self.rounds.append(found)
            self.news.notify_all()

    def wait_for(self, *names: str) -> dict[str, TableRound]:
        with self.news:
            assert self.news.wait_for(lambda: {*names} <= {each.table for each in self.rounds}, PATIENCE_S)
            return {each.table: each for each in self.rounds}


class Service:
    """A service over tables of which some misbehave when they are opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said = Said()
        self.wrong: dict[str, Callable[[], None]] = {}
        self.opened: list[RegisteredTable] = []
        self.registry: Callable[[], Registry] = self.of("good", "bad")

    def of(self, *names: str) -> Callable[[], Registry]:
        entries = tuple(RegisteredTable(name=name, uri=str(self.folder / name)) for name in names)
        return lambda: Registry(tables=entries)

    def open(self, entry: RegisteredTable) -> Table:
        self.opened.append(entry)
        self.wrong.get(entry.name, lambda: None)()
        return Table.open(entry.uri)

    def made(self, *names: str, due_only: bool = True, clock: Clock | None = None, **settings: float) -> FleetService:
        return FleetService(
            lambda: self.registry(),
            FleetRequest(names, due_only=due_only),
            settings=FleetSettings(**settings),
            on_round=self.said,
            open_table=self.open,
            clock=clock,
        )

    def started(self, *, due_only: bool = True, every_s: float = 0.05, **settings: float) -> FleetService:
        service = self.made(due_only=due_only, **settings)
        service.start(every_s)
        return service


@pytest.fixture
def service(tmp_path: Path) -> Service:
    write_generations(make_people_table(str(tmp_path / "good"), rows=people(1, 2), buckets=1), [3], name="a")
    return Service(tmp_path)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    opened = threading.Event()
    yield opened
    opened.set()


def failing() -> None:
    raise UnavailableError("the store is on fire", remedy="call the fire brigade")


def test_table_that_does_not_say_whether_it_is_due_keeps_no_other_waiting(
    service: Service, gate: threading.Event
) -> None:
    service.wrong["bad"] = gate.wait
    running = service.started(survey_deadline_s=10 * PATIENCE_S)

    ends = service.said.wait_for("good")

    assert ends["good"].end is RoundEnd.MAINTAINED
    assert "bad" not in ends
    gate.set()
    assert running.stop(PATIENCE_S)


def test_table_that_fails_is_told_once_and_asked_again_and_the_others_are_maintained(service: Service) -> None:
    asked = threading.Semaphore(0)

    def fail() -> None:
        asked.release()
        failing()

    service.wrong["bad"] = fail
    running = service.started()
    ends = service.said.wait_for("good", "bad")
    for _ in range(3):
        assert asked.acquire(timeout=PATIENCE_S)

    assert running.stop(PATIENCE_S)
    assert (ends["good"].end, ends["bad"].end) == (RoundEnd.MAINTAINED, RoundEnd.FAILED)
    assert [each.table for each in service.said.rounds] in (["good", "bad"], ["bad", "good"])
    assert Table.open(str(service.folder / "good")).base.state().num_rows == 3
    metrics = exposition(running.state)
    assert 'memwal_maintain_table_problem{memwal_table="bad"} 1' in metrics
    assert 'memwal_maintain_cycles_total{memwal_table="good",end="done"} 1' in metrics
    health = service_health(running.state, SystemClock().monotonic(), 60)
    assert (health["healthy"], health["problems"]) == (True, {"bad": "the store is on fire"})


def test_p8_service_keeps_no_report_of_a_cycle_that_was_told(service: Service) -> None:
    """That of a table of 300 regions is a megabyte of JSON, and of each table the last one stayed in memory."""
    made = service.started()
    told = service.said.wait_for("good")["good"]
    made.stop(PATIENCE_S)

    assert told.report is not None
    last = made.state.tables["good"].last
    assert last is not None
    assert (last.why, last.report) == (told.why, None)


def test_silent_tables_keep_no_look_waiting_and_are_told_once(service: Service, gate: threading.Event) -> None:
    """A hundred tables on a dead store would take minutes of each look."""
    clock, begun, silence_ends = ManualClock(), threading.Semaphore(0), threading.Event()
    service.registry = service.of("bad", "good")
    running = service.made(clock=clock, survey_parallel=1, survey_deadline_s=10)

    def hang() -> None:
        clock.advance(10)
        silence_ends.wait(PATIENCE_S)
        failing()

    service.wrong["bad"] = hang
    running.look()
    service.said.wait_for("bad", "good")
    silence_ends.set()
    ended_by_itself([each for each in threading.enumerate() if each.name == "memwal-fleet-bad"])

    def wait() -> None:
        begun.release()
        gate.wait()

    service.wrong["bad"] = wait
    looks = threading.Thread(target=lambda: [running.look() for _ in range(3)], daemon=True)
    looks.start()
    ended_by_itself([looks])

    assert begun.acquire(timeout=PATIENCE_S)
    assert not begun.acquire(blocking=False)  # Asked once, by one thread, until it answers.
    assert [each.table for each in service.said.rounds].count("bad") == 1
    gate.set()
    assert running.stop(PATIENCE_S)


def ended_by_itself(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_clock_that_is_set_makes_no_service_ill_and_hides_no_service_that_hangs(service: Service) -> None:
    """Set back by an hour, it kept a service healthy for an hour that looked no more; set forward, it made one ill."""
    clock = ManualClock()
    running = service.made(clock=clock)
    running.look()

    clock.jump_wall_time(3600)
    assert service_health(running.state, clock.monotonic(), 60)["healthy"]
    clock.jump_wall_time(-7200)
    clock.advance(181)
    assert not service_health(running.state, clock.monotonic(), 60)["healthy"]


def test_service_is_healthy_while_a_look_at_silent_tables_goes_on(service: Service, gate: threading.Event) -> None:
    clock, at_the_second = ManualClock(), threading.Event()
    service.registry = service.of("bad", "good")
    running = service.made(clock=clock, survey_parallel=1, survey_deadline_s=1000)
    assert not service_health(running.state, clock.monotonic(), 60)["healthy"]

    def hang() -> None:
        clock.advance(1000)
        gate.wait()

    def hang_too() -> None:
        at_the_second.set()
        gate.wait()

    service.wrong |= {"bad": hang, "good": hang_too}
    look = threading.Thread(target=running.look, daemon=True)
    look.start()
    assert at_the_second.wait(PATIENCE_S)

    assert running.state.looked is None
    assert service_health(running.state, clock.monotonic(), 60)["healthy"]
    clock.advance(181)
    assert not service_health(running.state, clock.monotonic(), 60)["healthy"]
    gate.set()
    ended_by_itself([look])


def test_table_that_answers_again_is_no_problem_any_more(service: Service) -> None:
    """Its next cycle may be due in a day."""
    service.registry = service.of("good")
    running = service.made()
    running.look()
    service.said.wait_for("good")
    assert running.stop(PATIENCE_S)
    again = service.made()
    service.wrong["good"] = failing
    again.look()
    assert 'memwal_maintain_table_problem{memwal_table="good"} 1' in exposition(again.state)

    del service.wrong["good"]
    again.look()

    assert service_health(again.state, SystemClock().monotonic(), 60)["problems"] == {}
    metrics = exposition(again.state)
    assert 'memwal_maintain_table_problem{memwal_table="good"} 1' not in metrics
    assert "memwal_maintain_cycles_total{" not in metrics  # None ran.


def test_table_that_hangs_keeps_no_other_from_being_maintained_again(service: Service, gate: threading.Event) -> None:
    """A round waits for its slowest table; the service must not."""
    service.wrong["bad"] = lambda: assert_opens(gate)
    running = service.started(due_only=False)

    with service.said.news:
        assert service.said.news.wait_for(
            lambda: len([each for each in service.said.rounds if each.table == "good"]) >= 3, PATIENCE_S
        )
    assert "bad" in running.state.working
    assert not running.stop(0.0, last_s=0.1)  # It cannot be ended from outside: the process has to.
    gate.set()


def assert_opens(gate: threading.Event) -> None:
    gate.wait()


def test_stop_lets_a_cycle_end_or_keeps_it_from_its_next_write(service: Service, gate: threading.Event) -> None:
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        gate.wait()

    service.wrong["good"] = slow
    service.registry = service.of("good")
    running = service.started(due_only=False)
    assert begun.wait(PATIENCE_S)
    stopped: list[bool] = []
    stop = threading.Thread(target=lambda: stopped.append(running.stop(PATIENCE_S)))
    stop.start()
    running.stop_now()
    gate.set()
    stop.join(PATIENCE_S)

    assert stopped == [True]
    (end,) = service.said.rounds
    assert (end.end, end.why) == (RoundEnd.FAILED, "the process is asked to end")
    table = Table.open(str(service.folder / "good"))
    assert table.base.state().num_rows == 2  # Nothing was written any more, and no lease is left behind.
    assert table.run(MergeRequest()).generations == 1


def test_stop_waits_for_a_cycle_that_is_just_beginning(
    service: Service, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ended in the midst of it, and its lease stayed."""
    ended: list[list[TableRound]] = []

    def stop() -> None:
        running.stop(PATIENCE_S)
        ended.append(list(service.said.rounds))

    def started(name: str, call: Callable[[], None]) -> object:
        begun = start(name, call)
        stopping.start()
        stopping.join(0.5)
        return begun

    running = service.made(due_only=False)
    start, stopping = running._cycles.start, threading.Thread(target=stop)
    monkeypatch.setattr(running._cycles, "start", started)
    service.wrong["good"] = gate.wait
    service.registry = service.of("good")
    running.look()
    gate.set()
    stopping.join(PATIENCE_S)

    assert [each.table for each in ended[0]] == ["good"]


def test_changes_of_the_registry_are_followed_and_one_that_cannot_be_read_leaves_the_tables(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.registry = service.of("good")
    running = service.started()
    service.said.wait_for("good")
    assert "does not name" not in caplog.text

    def unreadable() -> Registry:
        raise InvalidRequestError("the registry of tables cannot be read", remedy="correct it")

    service.registry = unreadable
    running.look()
    assert (running.state.registry_problem, set(running.state.tables)) == (
        "the registry of tables cannot be read",
        {"good"},
    )
    service.registry = lambda: Registry(broken=(BrokenEntry(name="odd", problem="x"),))
    assert service.said.wait_for("odd")["odd"].exit_code == 2
    running.look()
    assert (set(running.state.tables), running.state.registry_problem) == ({"odd"}, "")
    assert "does not name them: good" in caplog.text
    assert running.stop(PATIENCE_S)


@pytest.mark.parametrize("after", ["excluded", "spared"])
def test_cycle_that_waits_for_its_turn_does_what_the_registry_says_then(
    service: Service, gate: threading.Event, after: str
) -> None:
    """A table was maintained, and its garbage deleted, hours after the log had said that it was not any more."""
    service.registry = service.of("bad", "good", "next")
    service.wrong["bad"] = gate.wait
    running = service.made(due_only=False, parallel=1)
    running.look()
    bad, good, following = service.registry().tables
    kept = () if after == "excluded" else (good.model_copy(update={"collect_garbage": False}),)
    service.registry = lambda: Registry(tables=(bad, *kept, following))
    running.look()
    gate.set()
    ended = service.said.wait_for("next")
    assert running.stop(PATIENCE_S)

    assert set(ended) == {"bad", *(each.name for each in kept), "next"}
    assert [each for each in service.opened if each.name == "good"] == list(kept)


def test_table_that_was_asked_for_by_name_is_left_alone_once_it_is_excluded(service: Service) -> None:
    """It was a name that cannot be found, and so the registry before it counted, which had not excluded it."""
    running = service.made("good", "bad")
    running.look()
    tables = service.registry().tables
    service.registry = lambda: Registry(tables=tables, exclude=("good",))
    running.look()

    assert set(running.state.tables) == {"bad"}
    assert running.state.registry_problem == "this table is excluded from maintenance"
    assert running.stop(PATIENCE_S)


@pytest.mark.parametrize("refused", ["memwal-good", "memwal-fleet-good", "memwal-silent"])
def test_machine_out_of_threads_keeps_no_table_from_its_next_cycle(
    service: Service, monkeypatch: pytest.MonkeyPatch, gate: threading.Event, refused: str
) -> None:
    """Before, the table counted as at work from then on, and was never asked again."""
    start, names = threading.Thread.start, {refused}

    def refuse(thread: threading.Thread) -> None:
        if thread.name in names:
            names.clear()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    service.registry = service.of("good")
    if refused == "memwal-silent":
        service.wrong["good"] = gate.wait
    running = service.started(survey_deadline_s=0.1 if refused == "memwal-silent" else PATIENCE_S)
    with service.said.news:
        assert service.said.news.wait_for(lambda: not names, PATIENCE_S)
    gate.set()

    with service.said.news:
        assert service.said.news.wait_for(
            lambda: any(each.end is RoundEnd.MAINTAINED for each in service.said.rounds), PATIENCE_S
        )
    assert running.stop(PATIENCE_S)


def test_service_that_ends_while_it_asks_a_table_says_so(service: Service, gate: threading.Event) -> None:
    """Before, its process ended by SIGABRT instead of 0: native code ran on while the interpreter ended."""
    service.wrong["bad"] = gate.wait
    running = service.started(survey_deadline_s=10 * PATIENCE_S)
    service.said.wait_for("good")

    assert running.stop(PATIENCE_S)
    assert running.is_asking
    gate.set()
    while running.is_asking:
        pass
