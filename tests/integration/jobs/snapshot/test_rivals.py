"""The index builder against mergers, other builders, and many regions."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable, read_snapshot
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import manifest_path, wal_entry_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.ids import IdSource, RegionId
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.report import SnapshotReport
from memwal_core.jobs.snapshot.run import SNAPSHOT_BUILT, build_region_snapshot
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.settings import IndexSettings, Settings, StorageSettings
from memwal_core.storage.concurrent import map_concurrently
from testkit.clock import ManualClock
from testkit.faults.failpoints import CallingFailpoints
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.rng import seeded_rng
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people, reopened, with_clock

SETTINGS = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0, concurrency=8))
WORKERS = Path(__file__).parent


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "t"), rows=people(1, 2), settings=SETTINGS)


def manifest_store(table: BaseTable) -> ManifestStore:
    return ManifestStore(table.store, IdSource(seeded_rng(1)), settings=SETTINGS.storage, clock=ManualClock())


def build(table: BaseTable, **more) -> SnapshotReport:
    return build_region_snapshot(JobContext(OpenTable.of(with_clock(table, ManualClock())), **more))


def new_region(table: BaseTable) -> RegionId:
    return manifest_store(table).create(IdSource().region_id()).region_id


@pytest.mark.req("BLD-15", "IDX-27", "IDX-29")
@pytest.mark.parametrize("threshold", [100, 0], ids=["inline", "external"])
def test_merge_that_commits_during_the_build_keeps_its_progress(table: BaseTable, threshold: int) -> None:
    made = new_region(table)
    settings = SETTINGS.model_copy(update={"index": IndexSettings(inline_snapshot_threshold=threshold)})
    merged = 0

    def merge_once(place: Failpoint) -> None:
        nonlocal merged
        if place == SNAPSHOT_BUILT:
            merged += 1
            merge_natively(table, people(100 + merged), {made: merged})

    report = build(BaseTable.open(table.uri, settings=settings), failpoints=CallingFailpoints(merge_once))

    details = table.state().require_details()
    assert (report.outcome, merged) == (JobOutcome.DONE, 1)
    assert details.merged_generation(made) == 1
    assert details.num_regions == 1
    assert table.state().num_rows == 3
    assert read_snapshot(table, table.state()) is not None


def test_version_that_is_removed_during_the_build_costs_an_attempt(table: BaseTable) -> None:
    """It ended the build with ``UnavailableError``: the commit could not find the version it was made from."""
    made = new_region(table)

    def move_on(place: Failpoint) -> None:
        if place == SNAPSHOT_BUILT:
            merge_natively(table, people(100), {made: 1})
            table.dataset().cleanup_old_versions(older_than=timedelta(0))

    report = build(table, failpoints=CallingFailpoints(move_on))

    details = table.state().require_details()
    assert (report.outcome, details.num_regions, details.merged_generation(made)) == (JobOutcome.DONE, 1, 1)


@pytest.mark.req("BLD-15")
def test_merges_that_commit_before_each_attempt_delay_the_build_and_lose_nothing(table: BaseTable) -> None:
    made = new_region(table)
    faulty = FaultyStore(table.store)
    merged = 0

    def merge_once(_call: object) -> None:
        nonlocal merged
        merged += 1
        merge_natively(BaseTable.open(table.uri), people(100 + merged), {made: merged})

    def is_version(path: str) -> bool:
        return path.startswith("_versions/")

    faulty.add(Rule(merge_once, Moment.BEFORE, frozenset({"put_if_absent"}), is_version, times=5))
    report = build(reopened(table, faulty, SETTINGS))

    assert (report.outcome, merged) == (JobOutcome.DONE, 5)
    assert table.state().require_details().merged_generation(made) == 5
    assert table.state().num_rows == 7


def test_build_that_loses_every_attempt_ends_as_a_conflict_and_publishes_nothing(table: BaseTable) -> None:
    made = new_region(table)
    settings = SETTINGS.model_copy(update={"index": IndexSettings(max_attempts=2, inline_snapshot_threshold=0)})
    faulty = FaultyStore(table.store)
    merged = 0

    def merge_once(_call: object) -> None:
        nonlocal merged
        merged += 1
        merge_natively(BaseTable.open(table.uri), people(100 + merged), {made: merged})

    faulty.add(
        Rule(merge_once, Moment.BEFORE, frozenset({"put_if_absent"}), lambda path: path.startswith("_v"), times=None)
    )
    report = build(reopened(table, faulty, settings))

    assert (report.outcome, report.outcome.exit_code) == (JobOutcome.CONFLICT, 4)
    assert report.reason
    assert table.state().require_details().num_regions == 0
    assert not [info for info in table.store.list_objects("_indices") if info.path.endswith("index.lance")]


@pytest.mark.req("BLD-15", "BLD-21")
def test_newer_snapshot_of_another_builder_is_not_replaced_by_an_older_one(table: BaseTable) -> None:
    first = new_region(table)
    rivals = 0

    def let_rival_build(place: Failpoint) -> None:
        nonlocal rivals
        if place == SNAPSHOT_BUILT and not rivals:
            rivals += 1
            new_region(table)
            assert build(table).outcome is JobOutcome.DONE

    report = build(table, failpoints=CallingFailpoints(let_rival_build))

    assert (report.outcome, report.overtaken) == (JobOutcome.NOTHING_TO_DO, 1)
    snapshot = read_snapshot(table, table.state())
    assert snapshot is not None
    assert snapshot.num_rows == 2
    assert first.bytes in snapshot.column("region_id").to_pylist()


@pytest.mark.req("BLD-15", "IDX-28")
def test_processes_that_build_and_merge_at_once_lose_no_progress(table: BaseTable) -> None:
    made, rounds = native_region_id(1), 25
    # Builders compare what they read: progress without generations would freeze the table.
    write_native_generations(table.uri, made, [[Put(people(1000 + number))] for number in range(1, rounds + 1)])
    first_version = table.state().version
    commands = [
        [sys.executable, str(WORKERS / "merger_worker.py"), table.uri, str(made), str(rounds)],
        [sys.executable, str(WORKERS / "builder_worker.py"), table.uri, str(rounds)],
    ]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for command in commands
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("\n")
            worker.stdin.flush()
        printed = [worker.communicate(timeout=500)[0].split() for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    assert printed[0] == [str(generation) for generation in range(1, rounds + 1)]
    assert printed[1].count("done") >= 1

    state = table.state()
    assert state.require_details().merged_generation(made) == rounds
    assert state.num_rows == 2 + rounds
    merged = 0
    for version in range(first_version, state.version + 1):
        found = table.state(version)
        progress = found.require_details().merged_generation(made)
        assert progress >= merged
        assert found.num_rows == 2 + progress
        merged = progress


def make_regions(table: BaseTable, count: int) -> None:
    def make(number: int) -> None:
        region_id = RegionId(IdSource(seeded_rng(number)).region_id())
        manifest = RegionManifest(region_id=region_id)
        table.store.put(manifest_path(region_id, 1), encode_manifest(manifest))
        table.store.put(wal_entry_path(region_id, 1, ".lance"), b"entry")

    map_concurrently(make, range(count), 16)


@pytest.mark.req("BLD-04", "BLD-12")
def test_requests_grow_with_the_regions_and_never_more_than_the_bound_are_under_way(tmp_path: Path) -> None:
    requests: dict[int, int] = {}
    for count in (100, 1000):
        table = make_people_table(str(tmp_path / f"t{count}"), settings=SETTINGS)
        make_regions(table, count)
        faulty = FaultyStore(table.store)
        gauge, lock = {"now": 0, "most": 0}, threading.Lock()

        def count_in(_call: object, gauge: dict[str, int] = gauge, lock: threading.Lock = lock) -> None:
            with lock:
                gauge["now"] += 1
                gauge["most"] = max(gauge["most"], gauge["now"])

        def count_out(_call: object, gauge: dict[str, int] = gauge, lock: threading.Lock = lock) -> None:
            with lock:
                gauge["now"] -= 1

        watched = reopened(table, faulty, SETTINGS)
        faulty.add(Rule(count_in, Moment.BEFORE, frozenset({"head", "put_if_absent"}), times=None))
        faulty.add(Rule(count_out, Moment.AFTER, frozenset({"head", "put_if_absent"}), times=None))
        calls = len(faulty.calls)

        report = build(watched)

        assert (report.plan.regions, len(report.hints_raised)) == (count, count)
        assert 1 < gauge["most"] <= SETTINGS.storage.concurrency
        requests[count] = len(faulty.calls) - calls
        assert faulty.count("list_directories", path=lambda path: path == "_mem_wal") == 1
        snapshot = read_snapshot(table, table.state())
        assert snapshot is not None
        assert snapshot.num_rows == count
        again = len(faulty.calls)
        assert build(watched).outcome is JobOutcome.NOTHING_TO_DO
        assert len(faulty.calls) - again <= 6 * count + 30
    assert requests[1000] <= 10.5 * requests[100]
    assert requests[1000] <= 15 * 1000
