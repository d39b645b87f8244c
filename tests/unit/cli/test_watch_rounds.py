"""The watch: no table delays another, what is known stays known, and its text is what Prometheus reads."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from memwal_core.cli.watch.exposition import METRICS, Watched, WatchedFleet, exposition, watch_health
from memwal_core.cli.watch.rounds import Watcher
from memwal_core.clock import SystemClock
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.fleet.deep_looks import DeepLooks
from memwal_core.jobs.findings import Finding, Level, Severity
from memwal_core.jobs.health import Health
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
    silent = [RegisteredTable(name=f"silent{number}", uri=f"/lake/silent{number}") for number in range(4)]
    release = [threading.Event() for _ in range(2)]
    rounds = iter(release)
    hangs = next(rounds)

    def examine(entry: RegisteredTable) -> Health:
        if entry in silent:
            hangs.wait()
        return health

    registry = Registry(tables=(*silent, ALIVE))
    watched = Watcher(lambda: registry, examine, clock=SystemClock(), deadline_s=0.5, concurrency=1)
    try:
        assert not watched.is_looking
        first = watched.look().tables
        assert watched.is_looking
        # Each of the silent ones loses its place in its time.
        assert any(not watched.look().tables[-1].problem for _ in range(20))
        ended, hangs = hangs, next(rounds)
        ended.set()
        looks = [watched.look().tables[-1].problem for _ in range(4)]
    finally:
        for each in release:
            each.set()

    assert "no answer in 0.5 s" in {each.problem for each in first[:-1]}
    # Who comes first is the machine's choice; one that is not asked is not called silent.
    assert first[-1].problem in {"", "its turn has not come: other tables take long to answer"}
    assert looks == [""] * 4


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

    assert table.health is health
    assert table.problem in str(error)
    text = exposition(watched.fleet)
    assert 'memwal_table_examined{memwal_table="alive"} 0' in text
    assert 'memwal_table_level{memwal_table="alive"} 0' in text


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
    broken = BrokenEntry(name="misspelled", problem="every_minute: Extra inputs are not permitted")
    watched = watcher(lambda _: health, load=lambda: Registry(tables=(ALIVE,), broken=(broken,)))

    fleet = watched.look()

    assert [(table.name, "every_minute" in table.problem) for table in fleet.tables] == [
        ("alive", False),
        ("misspelled", True),
    ]
    assert 'memwal_table_examined{memwal_table="misspelled"} 0' in exposition(fleet)
    assert "memwal_watch_tables 2" in exposition(fleet)
    assert "every_minute" in str(watch_health(fleet, ManualClock().now(), 60.0)["not_examined"])


def test_text_has_every_metric_once_and_unknown_signals_without_a_value(health):
    fleet = WatchedFleet((Watched('a "b"\\\n', health, ManualClock().now()),), ManualClock().now())

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
        return [each.finding_id for each in table.health.findings]

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
    assert (silent.health.level, alive.health.level) == (Level.OK, Level.PAGE)
