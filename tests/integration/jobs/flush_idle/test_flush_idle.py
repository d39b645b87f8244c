"""Rows of writers that are gone reach the base table; writers that live are left alone (S9)."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import lance
import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.coordination.ledger import RunOutcome
from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.flush_idle.plan import IdleReason
from memwal_core.jobs.flush_idle.report import FlushReport
from memwal_core.jobs.flush_idle.request import FlushRequest
from memwal_core.jobs.flush_idle.run import FLUSH_DECIDED, FLUSH_PLANNED, flush_idle_regions
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region import RegionStatus
from memwal_core.settings import DAY_S, FlushSettings
from memwal_core.table import Table
from memwal_core.wal.lance_codec import LanceCodec
from memwal_core.writer import RegionWriter
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints
from testkit.faults.faulty_store import Call, FaultyStore, Moment, Rule
from testkit.tables.native_regions import native_region_id, native_scan
from testkit.tables.people import make_people_table, people, reopened, with_clock
from testkit.tables.regions import create_region, writer_settings

SETTINGS = writer_settings()
NATIVE = native_region_id(1)
HOUR = 3600.0
WEEK = 7 * DAY_S


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), rows=people(0, name="base"), settings=SETTINGS)


@pytest.fixture(params=[RegionStatus.SEALED, RegionStatus.ACTIVE], ids=["lance", "arrow"])
def region(request, table):
    return create_region(table, request.param)


def admin(table, after_s: float = 0.0, settings=SETTINGS) -> Table:
    clock = ManualClock(datetime.now(tz=UTC) + timedelta(seconds=after_s))
    return Table(OpenTable.of(with_clock(table.with_settings(settings), clock)))


def run(table, after_s: float = 0.0, settings=SETTINGS, **request) -> FlushReport:
    report = admin(table, after_s, settings).run(FlushRequest(**request))
    assert isinstance(report, FlushReport)
    return report


def opened(table, region) -> RegionWriter:
    return RegionWriter.open(table, region)


def native(table, **options):
    return lance.dataset(table.uri).mem_wal_writer(str(NATIVE), max_wal_flush_interval_ms=1, **options)


def reasons(report: FlushReport) -> list[IdleReason]:
    return [each.reason for each in report.plan.regions]


def base_rows(table) -> dict[int, str]:
    found = lance.dataset(table.uri).to_table(columns=["id", "name"]).to_pydict()
    assert len(found["id"]) == len(set(found["id"]))
    return dict(zip(found["id"], found["name"], strict=True))


def test_rows_of_a_crashed_writer_reach_the_base_table(table, region) -> None:
    opened(table, region).put(people(1, 2, name="a"))

    assert reasons(run(table, HOUR - 60, due_only=True)) == [IdleReason.ALIVE]
    report = run(table, HOUR + 60, due_only=True)
    admin(table).run(MergeRequest())

    assert (report.outcome, reasons(report), report.rows) == (JobOutcome.DONE, [IdleReason.SILENT], 2)
    assert base_rows(table) == {0: "base", 1: "a", 2: "a"}
    assert run(table, 3 * HOUR, due_only=True).outcome is JobOutcome.NOTHING_TO_DO


def test_rows_of_a_closed_writer_are_flushed_without_waiting_for_silence(table, region) -> None:
    with opened(table, region) as writer:
        writer.put(people(1, name="a"))

    assert reasons(run(table, 500, due_only=True)) == [IdleReason.YOUNG]
    report = run(table, 700, due_only=True)

    assert (report.outcome, reasons(report)) == (JobOutcome.DONE, [IdleReason.RELEASED])
    assert opened(table, region).memtable.num_rows == 0


def test_living_writer_is_never_fenced_while_its_puts_go_on(table, region) -> None:
    """Rows older than every bound wait here, but the newest entry is young."""
    settings = SETTINGS.model_copy(update={"flush": FlushSettings(min_age_s=0, quiet_s=1)})
    settings = settings.model_copy(update={"writer": settings.writer.model_copy(update={"max_memtable_age_s": 0.25})})
    writer, stop, errors = opened(table, region), threading.Event(), []
    acknowledged = []

    def write() -> None:
        try:
            while not stop.wait(0.05):
                acknowledged.append(writer.put(people(len(acknowledged) + 1, name="a")).rows)
        except Exception as error:  # noqa: BLE001 - the test shows it
            errors.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    found = []
    try:
        for _ in range(30):
            found += reasons(run(table, 0, settings, due_only=True))
            stop.wait(0.1)
    finally:
        stop.set()
        thread.join()

    assert errors == []
    assert set(found) <= {IdleReason.ALIVE, IdleReason.FLUSHED}
    assert IdleReason.ALIVE in found
    assert writer.flush().physical_rows == len(acknowledged)
    # Negative control: once the puts end, the same settings flush the region.
    writer.put(people(999, name="last"))
    assert reasons(run(table, 2, settings, due_only=True)) == [IdleReason.SILENT]


def test_without_fence_a_region_with_signs_of_life_is_refused_and_the_report_says_so(table, region) -> None:
    writer = opened(table, region)
    writer.put(people(1, name="a"))

    refused = run(table, 60, regions=[region])

    assert (refused.outcome, reasons(refused)) == (JobOutcome.NOTHING_TO_DO, [IdleReason.ALIVE])
    assert "--fence" in "\n".join(refused.view().lines())
    assert writer.put(people(2, name="a")).rows == 1

    fenced = run(table, 60, regions=[region], fence=True)

    assert (fenced.outcome, reasons(fenced)) == (JobOutcome.DONE, [IdleReason.REQUESTED])
    assert opened(table, region).memtable.num_rows == 0


def test_silent_writer_of_pylance_is_left_alone_for_a_week(table) -> None:
    idle = native(table)
    idle.put(people(1, name="native"))

    report = run(table, WEEK - 60, due_only=True)

    assert reasons(report) == [IdleReason.ALIVE]
    assert "another program's" in report.plan.regions[0].evidence
    idle.put(people(2, name="native"))
    idle.close()


def test_rows_of_a_dead_writer_of_pylance_reach_the_base_table_and_its_successor_goes_on(table) -> None:
    crashed = native(table)
    crashed.put(people(1, 2, name="native"))
    crashed.delete(people(1).select(["id"]))

    report = run(table, WEEK + 60, due_only=True)
    admin(table).run(MergeRequest())

    assert reasons(report) == [IdleReason.SILENT]
    assert base_rows(table) == {0: "base", 2: "native"}
    with native(table) as successor:
        successor.put(people(2, 3, name="later"))
    admin(table).run(MergeRequest())
    assert base_rows(table) == {0: "base", 2: "later", 3: "later"}
    manifest = admin(table).opened.manifests.load(NATIVE)
    assert native_scan(table.uri, [manifest], ["id"], "id").column("id").to_pylist() == [0, 2, 3]


def test_region_in_which_pylance_only_left_fences_has_nothing_to_flush(table) -> None:
    with native(table) as writer:
        writer.put(people(1, name="native"))
    with native(table):
        pass

    assert reasons(run(table, 2 * WEEK, due_only=True)) == [IdleReason.FLUSHED]


def test_our_claim_in_a_region_of_pylance_counts_as_ours(table) -> None:
    """A writer of ours that took over and died is dead after an hour, not a week."""
    native(table).put(people(1, name="native"))
    opened(table, NATIVE)

    assert reasons(run(table, HOUR + 60, due_only=True)) == [IdleReason.SILENT]


def test_claim_of_pylance_in_a_region_of_ours_counts_as_pylances(table) -> None:
    arrow = create_region(table, RegionStatus.ACTIVE)
    opened(table, arrow).put(people(1, name="ours"))
    successor = lance.dataset(table.uri).mem_wal_writer(str(arrow), max_wal_flush_interval_ms=1)

    assert reasons(run(table, HOUR + 60, due_only=True)) == [IdleReason.ALIVE]
    successor.put(people(2, name="native"))
    successor.close()


def test_writer_that_comes_back_before_the_claim_keeps_its_region(table, region) -> None:
    opened(table, region).put(people(1, name="a"))
    writers = []
    points = ArmedFailpoints().arm(FLUSH_DECIDED, lambda: writers.append(opened(table, region)))
    opened_table = admin(table, HOUR + 60).opened

    report = flush_idle_regions(JobContext(opened_table, failpoints=points), FlushRequest())

    assert report.outcome is JobOutcome.NOTHING_TO_DO
    assert "claimed the region first" in report.left[region]
    assert f"; 1 not flushed: {report.left[region]}" in report.why()
    assert writers[0].put(people(2, name="b")).rows == 1


def test_sign_of_life_between_plan_and_claim_spares_the_region(table, region) -> None:
    writer = opened(table, region)
    writer.put(people(1, name="a"))
    (path,) = [
        Path(table.store.uri_of(wal_entry_path(region, wal_id, suffix)))
        for wal_id, suffix in [(1, ".lance"), (2, ".arrow")]
        if table.store.head(wal_entry_path(region, wal_id, suffix)) is not None
    ]
    opened_table = admin(table, HOUR + 60).opened
    later = opened_table.clock.now().timestamp()

    def put() -> None:
        entry = writer.put(people(2, name="b"))
        young = wal_entry_path(region, entry.wal_id, path.suffix)
        os.utime(table.store.uri_of(young), (later, later))

    points = ArmedFailpoints().arm(FLUSH_PLANNED, put)

    report = flush_idle_regions(JobContext(opened_table, failpoints=points), FlushRequest())

    assert (reasons(report), report.flushed) == ([IdleReason.SILENT], ())
    assert report.left == {region: IdleReason.ALIVE.value}
    assert writer.flush() is not None


def test_two_runs_at_once_flush_every_row_once(table) -> None:
    regions = [create_region(table, status) for status in (RegionStatus.SEALED, RegionStatus.ACTIVE) for _ in range(3)]
    for number, each in enumerate(regions):
        opened(table, each).put(people(number + 1, name="a"))
    opened_table = admin(table, HOUR + 60).opened
    both = threading.Barrier(2, timeout=60)
    reports = []

    def work() -> None:
        points = ArmedFailpoints().arm(FLUSH_PLANNED, both.wait)
        reports.append(flush_idle_regions(JobContext(opened_table, failpoints=points), FlushRequest()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(reports) == 2
    assert all(not report.failures and not report.unflushable for report in reports)
    for each in regions:
        manifest = opened_table.manifests.load(each)
        assert sum(flushed.physical_rows for flushed in manifest.flushed_generations) == 1
    admin(table).run(MergeRequest())
    assert base_rows(table) == {0: "base"} | {number + 1: "a" for number in range(6)}


def test_damaged_region_does_not_keep_the_others_from_being_flushed(table) -> None:
    broken, sound = create_region(table), create_region(table)
    opened(table, broken).put(people(1, name="lost"))
    opened(table, sound).put(people(2, name="a"))
    Path(table.store.uri_of(wal_entry_path(broken, 1, ".lance"))).write_bytes(b"damage")

    by_cycle = run(table, HOUR + 60, due_only=True)

    assert by_cycle.outcome is JobOutcome.PARTIAL
    assert "1 not flushed: a WAL entry exists but cannot be read" in by_cycle.why()
    assert [each.region_id for each in by_cycle.flushed] == [sound]
    assert list(by_cycle.unflushable) == [broken]
    [became] = {row[1] for row in by_cycle.view().grids[0].rows if row[0] == str(broken)}
    assert became == "failed"
    assert run(table, 3 * HOUR, regions=[broken]).outcome is JobOutcome.BLOCKED


def test_region_whose_rows_no_version_of_the_table_takes_is_told_by_every_cycle(
    table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cycles ended with `nothing_to_do` and 3, and no history told of the region."""
    region = create_region(table)
    with monkeypatch.context() as patch:
        patch.setattr(LanceCodec, "_noted_ids", lambda self, schema: {})  # As entries were before they named ids.
        opened(table, region).put(people(1))
    lance.dataset(table.uri).drop_columns(["score"])
    lance.dataset(table.uri).cleanup_old_versions(timedelta(0), delete_unverified=True)

    report = run(table, HOUR + 60, due_only=True)

    assert (report.outcome, list(report.unflushable)) == (JobOutcome.PARTIAL, [region])
    assert "1 not flushed: the WAL has rows with columns that no version of the table has" in report.why()
    assert "add these columns to the table again" in report.why()
    [recorded] = admin(table).opened.ledger.runs("flush")
    assert (recorded.outcome, recorded.verdict) == (RunOutcome.PARTIAL, report.why())


def test_region_that_cannot_be_looked_at_again_does_not_keep_the_others_from_being_flushed(table) -> None:
    """The second look was outside of what is reported: its error ended the run, and cancelled what had not begun."""
    silent, *others = (create_region(table) for _ in range(4))
    for number, each in enumerate((silent, *others)):
        opened(table, each).put(people(number + 1, name="a"))
    store = FaultyStore(table.store)
    settings = SETTINGS.model_copy(update={"flush": FlushSettings(concurrency=1)})
    opened_table = admin(reopened(table, store, SETTINGS), HOUR + 60, settings).opened
    points = ArmedFailpoints().arm(
        FLUSH_PLANNED, lambda: store.fail("get", path=lambda path: str(silent) in path, times=9)
    )

    report = flush_idle_regions(JobContext(opened_table, failpoints=points), FlushRequest())

    assert report.outcome is JobOutcome.CONFLICT
    assert {each.region_id for each in report.flushed} == set(others)
    assert list(report.failures) == [silent]


def test_run_says_what_kept_a_region_from_being_flushed(table, region) -> None:
    """On a full disk it said that a writer had given its region back."""
    opened(table, region).put(people(1, name="a"))
    store = FaultyStore(table.store)

    def fill(_: Call) -> None:
        raise UnavailableError("the disk is full", remedy="free space, then try again", reason="[Errno 28]")

    store.add(Rule(fill, Moment.BEFORE, frozenset({"put_if_absent"}), lambda path: str(region) in path, times=None))
    report = admin(reopened(table, store, SETTINGS), HOUR + 60).run(FlushRequest())

    assert report.outcome is JobOutcome.CONFLICT
    assert "; 1 not flushed: " in report.why()
    assert "the disk is full" in report.why()
    assert "the disk is full" in "".join(report.view().notes)


def test_dry_run_changes_nothing(table, region) -> None:
    opened(table, region).put(people(1, name="a"))
    before = sorted((info.path, info.etag) for info in table.store.list_objects(""))

    report = run(table, HOUR + 60, dry_run=True)

    assert (report.outcome, len(report.plan.due)) == (JobOutcome.PLANNED, 1)
    assert sorted((info.path, info.etag) for info in table.store.list_objects("")) == before


def test_unknown_region_is_refused(table) -> None:
    with pytest.raises(InvalidRequestError, match="no such region"):
        run(table, regions=[IdSource().region_id()])


def test_region_without_unflushed_rows_costs_its_manifest_and_two_requests(table, region) -> None:
    with opened(table, region) as writer:
        writer.put(people(1, name="a"))
        writer.flush()
    store = FaultyStore(table.store)
    counted = OpenTable.of(reopened(table, store, SETTINGS))

    Table(counted).run(FlushRequest(dry_run=True, due_only=True))

    calls = [call for call in store.calls if str(region) in call.path]
    assert len([call for call in calls if "/wal/" in call.path]) == 2, "for the next entry, and the one behind it"
    assert not [call for call in calls if call.operation.startswith("put")]


def test_command_refuses_a_living_writer_and_fences_it_on_request(table, region) -> None:
    opened(table, region).put(people(1, name="a"))

    refused = CliRunner().invoke(app, ["flush", table.uri, "--json"])
    fenced = CliRunner().invoke(app, ["flush", table.uri, "--region", str(region), "--fence", "--json"])

    assert (refused.exit_code, fenced.exit_code) == (3, 0)
    assert json.loads(refused.stdout)["plan"]["counts"] == {"its writer may be alive": 1}
    assert json.loads(fenced.stdout)["rows"] == 1
