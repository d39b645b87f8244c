"""One process maintains many tables: the due ones, side by side, and what is wrong with one delays no other."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest

from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import InvalidRequestError
from memwal_core.fleet import Fleet, FleetRequest, RoundEnd
from memwal_core.fleet.isolation import Deadline
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.registry import BrokenEntry, RegisteredTable, Registry, parse_registry
from memwal_core.settings import FleetSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import later, write_generations
from testkit.tables.people import make_people_table, people

ROWS = {1: "a", 2: "p2", 5: "a"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "t"
    write_generations(make_people_table(str(path), rows=people(1, 2), buckets=1), [1, 5], name="a")
    return path


@pytest.fixture
def registry(tmp_path: Path, model: Path) -> Registry:
    for name in ("orders", "people", "events"):
        shutil.copytree(model, tmp_path / name)
    entries = "".join(
        f"[[tables]]\nname = '{name}'\nuri = '{tmp_path / name}'\n" for name in ("orders", "people", "events")
    )
    return parse_registry(entries, str(tmp_path / "tables.toml"))


class Opening:
    """Opens tables with a clock of the tests, and misbehaves for some."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.opened: list[str] = []
        self.wrong: dict[str, object] = {}

    def __call__(self, table: RegisteredTable) -> Table:
        self.opened.append(table.name)
        if wrong := self.wrong.get(table.name):
            wrong()
        return Table.open(table.uri, settings=Settings(), clock=self.clock)


@pytest.fixture
def opening() -> Opening:
    return Opening(later(7200))


def fleet_of(opening: Opening, **settings: float) -> Fleet:
    return Fleet(opening, settings=FleetSettings(**settings), clock=opening.clock)


def ends(report) -> dict[str, str]:
    return {table.table: table.outcome.value if table.outcome else table.end.value for table in report.tables}


def raised(error: BaseException):
    def fail() -> None:
        raise error

    return fail


@pytest.mark.req("O1", "O9")
def test_due_tables_go_through_their_cycle_and_idle_ones_are_only_asked(registry, opening):
    fleet = fleet_of(opening)

    first = fleet.maintain_tables(registry)
    opening.opened.clear()
    second = fleet.maintain_tables(registry)
    asked = list(opening.opened)
    opening.clock.advance(600)
    third = fleet.maintain_tables(registry)

    assert (ends(first), first.exit_code) == (dict.fromkeys(("orders", "people", "events"), "done"), 0)
    assert all(lsm_view(Table.open(table.uri).base) == ROWS for table in registry.tables)
    assert (set(ends(second).values()), second.exit_code) == ({"not_due"}, 3)
    assert sorted(asked) == ["events", "orders", "people"]
    # What a cycle leaves to the next, for example old versions, depends on the settings.
    assert set(ends(third).values()) <= {"done", "nothing_to_do"}
    json.dumps(first.to_dict())


@pytest.mark.parametrize("outcome", [None, RunOutcome.FAILED, RunOutcome.CONFLICT, RunOutcome.DONE])
def test_cycle_that_was_cut_short_is_repeated_long_before_the_next_turn(tmp_path, model, opening, outcome):
    """A table that is maintained once a day waited for a day after its process was killed."""
    shutil.copytree(model, tmp_path / "daily")
    entry = f"[[tables]]\nname = 'daily'\nuri = '{tmp_path / 'daily'}'\nevery_minutes = 1440\n"
    registry = parse_registry(entry, str(tmp_path / "tables.toml"))
    opened = opening(registry.tables[0]).opened
    run = opened.new_run(MaintainRequest().key, "dead")
    opened.ledger.begin(run)
    if outcome is not None:
        opened.ledger.end(run, RunEnd(opening.clock.now(), outcome))
    fleet = fleet_of(opening)

    at_once = fleet.maintain_tables(registry)
    opening.clock.advance(600)
    later_on = fleet.maintain_tables(registry)

    assert ends(at_once) == {"daily": "not_due"}
    assert ends(later_on) == {"daily": "not_due" if outcome is RunOutcome.DONE else "done"}


@pytest.mark.req("O1")
def test_broken_frozen_and_panicking_tables_are_findings_about_themselves(registry, opening):
    orders, people_ = registry.tables[:2]
    Table.open(orders.uri).freeze("looking into it", by="test")
    opening.wrong["people"] = raised(LookupError("the conn_id `lake` isn't defined"))

    report = fleet_of(opening).maintain_tables(registry, FleetRequest(due_only=False))

    assert ends(report) == {"orders": "frozen", "people": "failed", "events": "done"}
    assert report.exit_code == 6
    [frozen, failed, _] = report.tables
    assert (frozen.exit_code, failed.exit_code) == (8, 5)
    assert failed.error["class"] == "LookupError"
    assert "isn't defined" in failed.error["what"]
    assert any(note.startswith(f"people ({people_.uri}): ") for note in report.view().notes)
    assert lsm_view(Table.open(people_.uri).base) == ROWS  # nothing was merged; readers see the row in its MemTable


@pytest.mark.req("O1")
def test_entry_that_is_not_understood_keeps_no_table_from_its_cycle(registry, opening):
    broken = registry.model_copy(update={"broken": (BrokenEntry(name="typo", problem="every: there is no such name"),)})

    report = fleet_of(opening).maintain_tables(broken)

    assert ends(report) == {"orders": "done", "people": "done", "events": "done", "typo": "failed"}
    assert (report.exit_code, report.tables[-1].exit_code) == (6, 2)
    assert "every: there is no such name" in report.tables[-1].why


@pytest.mark.req("O1")
def test_table_that_is_slow_to_say_whether_it_is_due_keeps_no_other_from_its_cycle(registry, opening):
    asked, others_work = [], threading.Event()

    def begins() -> None:
        asked.append("people")
        if len(asked) == 2:  # whether it is due, and then for its cycle
            others_work.set()

    def slow() -> None:
        assert others_work.wait(60)

    opening.wrong |= {"orders": slow, "people": begins}

    assert set(ends(fleet_of(opening).maintain_tables(registry)).values()) == {"done"}


@pytest.mark.req("O1", "O6")
def test_table_that_hangs_is_overdue_and_the_others_are_done(registry, opening):
    release = threading.Event()

    def hang() -> None:
        opening.clock.advance(120)
        assert release.wait(60)

    opening.wrong["orders"] = hang
    fleet = fleet_of(opening, parallel=1, survey_parallel=1, deadline_s=1000)
    try:
        report = fleet.maintain_tables(registry)
        again = fleet.maintain_tables(registry, FleetRequest(names=("orders",)))
        assert fleet.running == ("orders",)
    finally:
        release.set()

    assert ends(report) == {"orders": "overdue", "people": "done", "events": "done"}
    assert report.exit_code == 6
    assert (ends(again), again.exit_code) == ({"orders": "still_running"}, 4)


@pytest.mark.req("O6")
def test_no_further_step_begins_after_the_deadline(registry, opening):
    over = Deadline(opening.clock, opening.clock.monotonic(), 0)

    report = Table.open(registry.tables[0].uri, clock=opening.clock).run(MaintainRequest(), guard=over.check)

    assert [step.end.value for step in report.steps] == ["not_reached"] * 10
    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert "time for this table is over" in report.steps[0].why


def test_unknown_name_is_refused_before_anything_is_done(registry, opening):
    with pytest.raises(InvalidRequestError, match="not registered"):
        fleet_of(opening).maintain_tables(registry, FleetRequest(names=("orders", "ordres")))

    assert opening.opened == []


def test_table_that_is_named_twice_goes_through_one_cycle(registry, opening):
    """Before, two cycles of it began, and the end of the faster one was told, and ended the process."""
    orders = registry.tables[0]
    asked = FleetRequest(("orders", orders.uri, "orders"), due_only=False)

    report = fleet_of(opening).maintain_tables(registry, asked)

    assert ends(report) == {"orders": "done"}
    assert opening.opened == ["orders"]


def test_dry_run_changes_nothing_and_is_no_cycle(registry, opening, tmp_path):
    before = sorted(path for path in tmp_path.rglob("*"))

    report = fleet_of(opening).maintain_tables(registry, FleetRequest(dry_run=True))

    assert set(ends(report).values()) == {"planned"}
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_dry_run_of_a_frozen_table_says_that_nothing_would_happen(registry, opening):
    """It said "planned", and what a run would do on a table that is not frozen."""
    Table.open(registry.tables[0].uri).freeze("looking into it", by="test")

    report = fleet_of(opening).maintain_tables(registry, FleetRequest(dry_run=True))

    assert ends(report) == {"orders": "frozen", "people": "planned", "events": "planned"}
    assert report.tables[0].exit_code == 8
    assert "memwal thaw" in report.tables[0].why


def test_table_whose_merge_another_run_has_is_busy_and_no_problem(registry, opening):
    """It counted as maintained, although nothing was merged."""
    request = FleetRequest(names=("orders",), due_only=False)
    with opening(registry.tables[0]).opened.leases.acquire(JobKey("merge"), "somebody else"):
        report = fleet_of(opening).maintain_tables(registry, request)

    [found] = report.tables
    assert (found.end, found.outcome, found.exit_code) == (RoundEnd.BUSY, None, 0)
    assert "merge: another process holds the lease of this job until " in found.why
    [run] = Table.open(registry.tables[0].uri).opened.ledger.runs("maintain")
    assert run.outcome is RunOutcome.BUSY


@pytest.mark.req("LEASE-34")
def test_two_rounds_at_once_do_no_harm(registry, opening):
    reports, barrier = [], threading.Barrier(2)
    request = FleetRequest(names=("orders",), due_only=False)

    def maintain() -> None:
        barrier.wait(60)
        reports.append(fleet_of(opening).maintain_tables(registry, request))

    threads = [threading.Thread(target=maintain) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = {table.end for report in reports for table in report.tables}
    assert found <= {RoundEnd.MAINTAINED, RoundEnd.BUSY}
    assert lsm_view(Table.open(registry.tables[0].uri).base) == ROWS
    assert Table.open(registry.tables[0].uri).base.dataset().count_rows() == len(ROWS)
