"""The watch: no table delays another, what is known stays known, and its text is what Prometheus reads."""

from __future__ import annotations

import threading
from dataclasses import replace
from uuid import UUID

import pytest

from memwal_core.cli.watch.exposition import METRICS, Watched, WatchedFleet, exposition, watch_health
from memwal_core.cli.watch.rounds import Watcher
from memwal_core.clock import SystemClock
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.ids import RegionId
from memwal_core.observe.doctor.examination import ExaminedRegion
from memwal_core.observe.findings import Finding, Level, Severity
from memwal_core.observe.health import Health
from memwal_core.observe.signals import SIGNALS, Reading, Signal
from memwal_core.registry import BrokenEntry, RegisteredTable, Registry
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.tables.people import make_people_table, people

ALIVE = RegisteredTable(name="alive", uri="/lake/alive.lance")
SILENT = RegisteredTable(name="silent", uri="/lake/silent.lance")


@pytest.fixture(scope="module")
def health(tmp_path_factory) -> Health:
    made = make_people_table(str(tmp_path_factory.mktemp("watch") / "t"), rows=people(1), buckets=1)
    return Table.open(made.uri).health()


def watcher(examine, *tables: RegisteredTable, deadline_s: float = 30.0, load=None) -> Watcher:
    registry = Registry(tables=tables)
    return Watcher(load or (lambda: registry), examine, clock=ManualClock(), deadline_s=deadline_s, concurrency=4)


def test_table_that_never_answers_delays_no_other_and_is_asked_once(health):
    release, asked = threading.Event(), []

    def examine(entry: RegisteredTable) -> Health:
        asked.append(entry.name)
        if entry is SILENT:
            release.wait()
        return health

    watched = watcher(examine, SILENT, ALIVE, deadline_s=0.5)
    try:
        rounds = [{table.name: table for table in watched.look().tables} for _ in range(2)]
    finally:
        release.set()

    assert [each["alive"].problem for each in rounds] == ["", ""]
    assert [each["silent"].problem for each in rounds] == ["no answer in 0.5 s"] * 2
    assert (asked.count("alive"), asked.count("silent")) == (2, 1)


def test_silent_tables_take_no_place_from_those_that_answer(health):
    """With a hundred tables on a dead store, no other was examined any more, and each was said to be silent."""
    silent = [RegisteredTable(name=f"silent{number}", uri=f"/lake/silent{number}") for number in range(2)]
    release = [threading.Event() for _ in range(2)]
    rounds = iter(release)
    hangs = next(rounds)

    def examine(entry: RegisteredTable) -> Health:
        if entry in silent:
            hangs.wait()
        return health

    registry = Registry(tables=(*silent, ALIVE))
    watched = Watcher(lambda: registry, examine, clock=SystemClock(), deadline_s=1.0, concurrency=1)
    try:
        assert not watched.is_looking
        first = watched.look().tables
        assert watched.is_looking
        # Each of the silent ones loses its place in its time.
        assert any(not watched.look().tables[-1].problem for _ in range(20))
        ended, hangs = hangs, next(rounds)
        ended.set()
        looks = [watched.look().tables[-1].problem for _ in range(3)]
    finally:
        for each in release:
            each.set()

    assert "no answer in 1 s" in {each.problem for each in first[:-1]}
    # Who comes first is the machine's choice; one that is not asked is not called silent.
    assert first[-1].problem in {"", "its turn has not come: other tables take long to answer"}
    assert looks == [""] * 3


class PanicError(BaseException):
    """As native code raises them: no ``Exception``."""


@pytest.mark.parametrize(
    "error", [UnavailableError("the store is away", remedy="wait"), RuntimeError("anything"), PanicError("index")]
)
def test_table_that_fails_is_shown_with_what_was_known_before(health, error):
    answers = [health, error]

    def examine(_: RegisteredTable) -> Health:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    watched = watcher(examine, ALIVE, deadline_s=5.0)
    watched.look()
    [table] = watched.look().tables

    assert table.judgement == health.judgement
    assert table.problem in str(error)
    text = exposition(watched.fleet)
    assert 'memwal_table_examined{memwal_table="alive"} 0' in text
    assert 'memwal_table_level{memwal_table="alive"} 0' in text


def test_what_is_kept_of_a_table_does_not_follow_its_regions(health):
    """A kilobyte and more of each region stayed in memory: gigabytes of some hundred tables."""
    regions = [RegionId(UUID(int=number)) for number in range(50)]
    examined = tuple(ExaminedRegion(each, None, None, {}, (), {}, (), 0, ()) for each in regions)
    readings = [Reading(Signal.PENDING_GENERATIONS, number, region_id=each) for number, each in enumerate(regions)]
    seen = replace(health.seen, regions=examined)
    looked = replace(health, seen=seen, readings=(*health.readings, *readings))

    [kept] = watcher(lambda _: looked, ALIVE).look().tables

    assert (kept.regions, kept.judgement.value(Signal.PENDING_GENERATIONS)) == (50, 49)
    assert (kept.judgement.findings, kept.judgement.signals) == (looked.findings, looked.signals)
    assert len(kept.judgement.readings) <= len(SIGNALS)
    assert not hasattr(kept.judgement, "seen")


def test_tables_that_leave_the_registry_are_named_once(health, caplog):
    """Half a file may be a registry: nothing said that the other half of the tables was not watched any more."""
    entries = [ALIVE, SILENT]
    watched = watcher(lambda _: health, load=lambda: Registry(tables=tuple(entries)))
    watched.look()
    entries[1:] = [RegisteredTable(name="new", uri="/lake/new.lance")]
    watched.look()
    entries[0] = RegisteredTable(name="renamed", uri=ALIVE.uri)
    watched.look()

    assert [each.getMessage().rpartition(": ")[2] for each in caplog.records] == ["silent"]


def test_registry_that_breaks_leaves_the_tables_watched(health):
    answers = [Registry(tables=(ALIVE,)), InvalidRequestError("no TOML", remedy="correct it")]

    def load() -> Registry:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    watched = watcher(lambda _: health, load=load)
    watched.look()
    fleet = watched.look()

    assert [table.problem for table in fleet.tables] == [""]
    assert "memwal_watch_registry_readable 0" in exposition(fleet)


def test_table_whose_entry_is_not_understood_counts_as_not_examined(health):
    """A misspelled field made a table vanish from the watch: no alert said that nothing maintains it any more."""
    broken = BrokenEntry(name="misspelled", problem="every_minute: there is no such name")
    watched = watcher(lambda _: health, load=lambda: Registry(tables=(ALIVE,), broken=(broken,)))

    fleet = watched.look()

    assert [(table.name, "every_minute" in table.problem) for table in fleet.tables] == [
        ("alive", False),
        ("misspelled", True),
    ]
    assert 'memwal_table_examined{memwal_table="misspelled"} 0' in exposition(fleet)
    assert "memwal_watch_tables 2" in exposition(fleet)
    assert "every_minute" in str(watch_health(fleet, ManualClock().monotonic(), 60.0)["not_examined"])


def test_text_has_every_metric_once_and_unknown_signals_without_a_value(health):
    fleet = WatchedFleet((Watched.of('a "b"\\\n', health, ManualClock().now()),), ManualClock().now())

    lines = exposition(fleet).splitlines()

    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == list(METRICS)
    label = 'memwal_table="a \\"b\\"\\\\\\n"'
    assert f'memwal_signal_level{{{label},memwal_signal="drain_time"}} -1' in lines
    assert not any(line.startswith("memwal_signal_value") and "drain_time" in line for line in lines)
    assert f'memwal_signal_value{{{label},memwal_signal="pending_generations"}} 0' in lines


def test_fleet_before_its_first_round_has_no_time():
    assert "memwal_watch_round_timestamp_seconds 1" not in exposition(WatchedFleet())


def finding(name: str, severity: Severity = Severity.CRITICAL) -> Finding:
    return Finding(name, severity, "it is wrong", {}, "rows", "look")


def test_deep_findings_are_kept_between_two_deep_looks_and_end_with_the_damage(health):
    """Base files that were lost and holes in a WAL were alerts never: only the doctor sees them."""
    clock, found, looks = ManualClock(), [finding("wal-hole")], []

    def look(entry: RegisteredTable) -> Health:
        looks.append(entry.name)
        return replace(health, damage=tuple(found))

    deep = DeepLooks(look, clock, 600)
    registry = Registry(tables=(ALIVE,))
    watched = Watcher(lambda: registry, lambda _: health, clock=clock, deadline_s=30, concurrency=1, deep=deep)

    def names() -> list[str]:
        [table] = watched.look(wait_for_deep=True).tables
        return [each.finding_id for each in table.judgement.findings]

    assert names() == ["wal-hole"]
    found.clear()
    assert names() == []
    assert names() == []
    assert len(looks) == 2
    clock.advance(600)
    names()
    assert len(looks) == 3


def test_deep_look_that_hangs_or_fails_delays_no_round_and_hides_nothing(health):
    release, failing = threading.Event(), []

    def look(entry: RegisteredTable) -> Health:
        if failing:
            raise UnavailableError("the store is away", remedy="wait")
        if entry is SILENT:
            release.wait()
        return replace(health, damage=(finding("wal-hole"),))

    deep = DeepLooks(look, ManualClock(), 600)
    registry = Registry(tables=(SILENT, ALIVE))
    watched = Watcher(lambda: registry, lambda _: health, clock=ManualClock(), deadline_s=0.5, concurrency=2, deep=deep)
    try:
        watched.look(wait_for_deep=True)
        failing.append(True)
        silent, alive = watched.look(wait_for_deep=True).tables
    finally:
        release.set()

    assert [silent.problem, alive.problem] == ["", ""]
    assert (silent.judgement.level, alive.judgement.level) == (Level.OK, Level.PAGE)


def test_deep_looks_that_hang_take_no_place_from_others_and_are_told(health):
    """Four of them ended all deep looks at all tables, for ever and without a word."""
    hanging = [RegisteredTable(name=f"hangs{number}", uri=f"/lake/hangs{number}") for number in range(4)]
    release, begun = threading.Event(), threading.Semaphore(0)

    def look(entry: RegisteredTable) -> Health:
        if entry in hanging:
            begun.release()
            release.wait()
        return health

    entries = [*hanging]
    clock = ManualClock()
    deep = DeepLooks(look, clock, 600, patience_s=1800)
    watched = Watcher(
        lambda: Registry(tables=tuple(entries)), lambda _: health, clock=clock, deadline_s=30, concurrency=9, deep=deep
    )
    try:
        watched.look()
        assert all(begun.acquire(timeout=30) for _ in hanging)
        clock.advance(1800)
        entries.append(ALIVE)
        watched.look()
        deep.wait(1.0)
        fleet = watched.look()
    finally:
        release.set()

    text = exposition(fleet)
    assert 'memwal_table_deep_examined{memwal_table="alive"} 1' in text
    assert 'memwal_table_deep_examined{memwal_table="hangs0"} 0' in text
    assert watch_health(fleet, clock.monotonic(), 60.0)["not_deeply_examined"] == {
        each.name: "no answer in 1800 s" for each in hanging
    }


def test_deep_look_that_fails_in_the_same_way_again_is_logged_once(health, caplog):
    """A dead store of hundreds of tables filled the log with as many lines every ten minutes."""
    problems = ["away", "away", "denied", None, "denied"]

    def look(_: RegisteredTable) -> Health:
        problem = problems.pop(0)
        if problem is not None:
            raise UnavailableError(f"the store is {problem}", remedy="wait")
        return health

    clock = ManualClock()
    deep = DeepLooks(look, clock, 600)
    while problems:
        deep.begin([ALIVE])
        deep.wait(30)
        deep.of(ALIVE.uri)
        clock.advance(600)

    said = [each.getMessage() for each in caplog.records if "no deep look" in each.getMessage()]
    assert [each.split("the store is ")[1].split(";")[0] for each in said] == ["away", "denied", "denied"]


def test_deep_look_that_fails_is_told_until_one_ends(health):
    answers = [UnavailableError("the store is away", remedy="wait"), health]

    def look(_: RegisteredTable) -> Health:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    clock = ManualClock()
    deep = DeepLooks(look, clock, 600)
    registry = Registry(tables=(ALIVE,))
    watched = Watcher(lambda: registry, lambda _: health, clock=clock, deadline_s=30, concurrency=1, deep=deep)

    [failed] = watched.look(wait_for_deep=True).tables
    clock.advance(600)
    [mended] = watched.look(wait_for_deep=True).tables

    assert "the store is away" in failed.deep_problem
    assert mended.deep_problem == ""


@pytest.mark.parametrize("begun", [0, 1])
def test_machine_out_of_threads_is_told_and_the_next_round_asks_again(health, monkeypatch, begun):
    """A table whose thread could not begin was not examined any more until the watch began anew."""
    start, starts = threading.Thread.start, iter(range(100))

    def refuse(thread: threading.Thread) -> None:
        if next(starts) == begun:
            raise RuntimeError("can't start new thread")
        start(thread)

    registry = Registry(tables=(ALIVE,))
    deep = DeepLooks(lambda _: health, SystemClock(), 1e-9)
    watched = Watcher(lambda: registry, lambda _: health, clock=SystemClock(), deadline_s=30, concurrency=1, deep=deep)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    [first] = watched.look(wait_for_deep=True).tables
    [second] = watched.look(wait_for_deep=True).tables

    assert "thread" in (first.deep_problem if begun else first.problem)
    assert (second.problem, second.deep_problem) == ("", "")


def test_tables_that_wait_for_their_turn_take_no_threads(health):
    """A page of 1,500 tables had as many threads while they waited for four places, more than most containers allow."""
    release, begun, before = threading.Event(), threading.Semaphore(0), threading.active_count()
    tables = [RegisteredTable(name=f"t{number}", uri=f"/lake/t{number}") for number in range(100)]

    def look(_: RegisteredTable) -> Health:
        begun.release()
        release.wait()
        return health

    clock = ManualClock()
    deep = DeepLooks(look, clock, 600, patience_s=1800)
    deep.begin(tables)
    assert all(begun.acquire(timeout=30) for _ in range(4))
    while_waiting = threading.active_count() - before
    clock.advance(1800)  # Those that have their places hang.
    deep.begin(tables)
    with_four_that_hang = threading.active_count() - before
    release.set()
    deep.wait(30)

    assert (while_waiting, with_four_that_hang) == (4, 8)
    assert all(deep.of(table.uri).seen_at is not None for table in tables)


def test_table_that_comes_back_or_is_renamed_is_not_shown_as_it_was_then(health):
    """What a look had found of a table that left was taken for new, and a renamed table kept its name for a round."""
    release, asked = threading.Event(), threading.Event()
    entries: list[RegisteredTable] = [SILENT]

    def examine(_: RegisteredTable) -> Health:
        asked.set()
        release.wait()
        return health

    watched = watcher(examine, deadline_s=0.2, load=lambda: Registry(tables=tuple(entries)))
    renamed = RegisteredTable(name="renamed", uri=SILENT.uri)
    watched.look()
    assert asked.wait(30)
    entries[:] = [renamed]
    release.set()
    while (found := watched.look().tables[0]).problem:
        pass
    assert found.name == "renamed"

    release.clear()
    entries[:] = [SILENT]
    watched.look()
    entries.clear()
    release.set()
    while watched.is_looking:
        watched.look()
    watched.look()
    release.clear()
    entries.append(SILENT)
    [back] = watched.look().tables
    release.set()
    assert back.problem == "no answer in 0.2 s"


def test_what_is_wrong_is_logged_when_it_begins_and_not_in_every_round(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    """A table that was gone, or a registry that could not be read, wrote a line a minute for as long as it was so."""
    errors = iter([UnavailableError("the store does not answer", remedy="")] * 2)

    def examine(_entry: RegisteredTable) -> Health:
        for error in errors:
            raise error
        return health

    registries = iter([*[Registry(tables=(ALIVE,))] * 3, None, None])

    def load() -> Registry:
        registry = next(registries)
        if registry is None:
            raise InvalidRequestError("the registry of tables cannot be read", remedy="")
        return registry

    watched = watcher(examine, load=load)
    for _ in range(5):
        watched.look()

    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "not examined [table=alive]",
        "the tables before are watched",
    ]
