"""Two mergers at once: the specification's second appendix with its numbers, and worse."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import manifest_path
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.commit.passes import MERGE_COMMIT, MERGE_COMMITTED
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.settings import MergeSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, CallingFailpoints, SimulatedCrash
from testkit.faults.faulty_store import FaultyStore
from testkit.faults.rival_mergers import Merger, merge_until, noted_table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, make_people_table, people, reopened, with_clock

REGION = native_region_id(7)
ONE_BY_ONE = MergeSettings(max_generations=1)


@pytest.fixture
def appendix_two(tmp_path: Path) -> str:
    """Progress {region: 5}; manifest version 1 with current generation 8 and generations 6 and 7."""
    scratch, uri = str(tmp_path / "scratch"), str(tmp_path / "table")
    make_people_table(scratch)
    write_native_generations(scratch, REGION, [[Put(people(1, 6, name="six"))], [Put(people(1, 7, name="seven"))]])
    made = Table.open(scratch).opened.manifests.load(REGION).flushed_generations
    table = make_people_table(uri, rows=people(1, 2))
    directory = Path(uri) / "_mem_wal" / str(REGION)
    for source, name in zip(made, ("abc123_gen_6", "def456_gen_7"), strict=True):
        shutil.copytree(Path(scratch) / "_mem_wal" / str(REGION) / source.path, directory / name)
    manifest = RegionManifest(
        region_id=REGION,
        version=1,
        current_generation=8,
        flushed_generations=(FlushedGeneration(6, "abc123_gen_6"), FlushedGeneration(7, "def456_gen_7")),
    )
    table.store.put(manifest_path(REGION, 1), encode_manifest(manifest))
    merge_natively(table, PEOPLE.empty_table(), {REGION: 5})
    return uri


def progress(uri: str) -> int:
    return BaseTable.open(uri).state().require_details().merged_generation(REGION)


def rows(uri: str) -> dict[int, str]:
    table = lance.dataset(uri).to_table()
    ids = table.column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, table.column("name").to_pylist(), strict=True))


@pytest.mark.req("MRG-22")
def test_appendix_state_plans_six_and_seven(appendix_two):
    admin = Table.open(appendix_two)
    manifest = admin.opened.manifests.load(REGION)
    assert (progress(appendix_two), manifest.version, manifest.current_generation) == (5, 1, 8)

    plan = admin.run(MergeRequest(dry_run=True)).plan

    assert [(each.generation, each.uri.rpartition("/")[2]) for each in plan.regions[0].take] == [
        (6, "abc123_gen_6"),
        (7, "def456_gen_7"),
    ]


@pytest.mark.req("MRG-23", "MRG-25", "MRG-10", "MRG-11", "MRG-13")
def test_rival_that_commits_six_first_makes_the_other_give_way_and_go_on_with_seven(appendix_two):
    slow = noted_table(appendix_two)
    conflicting: list[int] = []

    def rival_first() -> None:
        with pytest.raises(SimulatedCrash):
            merge_until(appendix_two, ArmedFailpoints().arm(MERGE_COMMITTED), max_generations=1)
        conflicting.append(BaseTable.open(appendix_two).state().version)

    report = Merger(slow, ONE_BY_ONE, ArmedFailpoints().arm(MERGE_COMMIT, rival_first)).run()

    assert report.overtaken == 1
    assert [commit.marks for commit in report.commits] == [{REGION: 7}]
    assert conflicting[0] in slow.versions_read
    assert progress(appendix_two) == 7
    assert rows(appendix_two) == {1: "seven", 2: "p2", 6: "six", 7: "seven"}


@pytest.mark.req("MRG-24", "MRG-18")
def test_crash_after_six_is_committed_lets_the_next_merger_skip_six(appendix_two):
    with pytest.raises(SimulatedCrash):
        merge_until(appendix_two, ArmedFailpoints().arm(MERGE_COMMITTED), max_generations=1)
    assert progress(appendix_two) == 6

    report = merge_until(appendix_two, max_generations=1)

    assert [commit.marks for commit in report.commits] == [{REGION: 7}]
    assert progress(appendix_two) == 7


@pytest.mark.req("MRG-16", "MRG-15", "MRG-20")
def test_two_mergers_of_the_same_inserts_commit_once(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri)
    write_native_generations(uri, REGION, [[Put(people(*range(500), name="new"))]])
    rival: list[JobOutcome] = []

    def rival_first() -> None:
        rival.append(merge_until(uri).outcome)

    report = Merger(noted_table(uri), failpoints=ArmedFailpoints().arm(MERGE_COMMIT, rival_first)).run()

    assert rival == [JobOutcome.DONE]
    assert (report.outcome, report.overtaken) == (JobOutcome.NOTHING_TO_DO, 1)
    assert len(rows(uri)) == 500


@pytest.mark.req("MRG-20")
def test_merger_of_fewer_generations_that_commits_late_is_refused(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri)
    write_native_generations(uri, REGION, [[Put(people(1, name=f"g{number}"))] for number in (1, 2, 3)])
    rival: list[int] = []

    def rival_first() -> None:
        rival.append(merge_until(uri).generations)

    report = Merger(noted_table(uri), ONE_BY_ONE, ArmedFailpoints().arm(MERGE_COMMIT, rival_first)).run()

    assert rival == [3]
    assert report.commits == ()
    assert rows(uri) == {1: "g3"}


@pytest.mark.req("MRG-12")
def test_conflict_with_a_commit_that_moved_no_progress_is_tried_again(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, name="merged"))]])

    def update_first() -> None:
        lance.dataset(uri).update({"name": "'updated'"}, where="id = 1")

    report = Merger(noted_table(uri), failpoints=ArmedFailpoints().arm(MERGE_COMMIT, update_first)).run()

    assert [commit.attempts for commit in report.commits] == [2]
    assert rows(uri) == {1: "merged", 2: "p2"}


@pytest.mark.req("MRG-12")
def test_rivals_that_win_every_attempt_end_in_a_retryable_conflict(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(1, 2))
    write_native_generations(uri, REGION, [[Put(people(1, name="merged"))]])

    def always_update(place: Failpoint) -> None:
        if place == MERGE_COMMIT:
            lance.dataset(uri).update({"name": "'updated'"}, where="id = 1")

    report = Merger(noted_table(uri), MergeSettings(max_attempts=3), CallingFailpoints(always_update)).run()

    assert report.outcome is JobOutcome.CONFLICT
    assert report.outcome.exit_code == 4
    assert "won every attempt" in report.reason
    assert progress(uri) == 0


def insert_then_delete(uri: str) -> None:
    make_people_table(uri)
    keys = people(200).select(["id"])
    write_native_generations(
        uri, REGION, [[Put(people(200, name="g1"))], [Put(people(300, name="g2")), Delete(keys)], [Put(people(1))]]
    )


@pytest.mark.req("MRG-14")
def test_late_delete_does_not_delete_what_a_newer_generation_brought_back(tmp_path):
    uri = str(tmp_path / "t")
    make_people_table(uri, rows=people(200))
    keys = people(200).select(["id"])
    write_native_generations(uri, REGION, [[Delete(keys), Put(people(300))], [Put(people(200, name="back"))]])
    rival: list[int] = []

    def rival_first() -> None:
        rival.append(merge_until(uri, max_generations=1).generations)

    report = Merger(noted_table(uri), ONE_BY_ONE, ArmedFailpoints().arm(MERGE_COMMIT, rival_first)).run()

    assert rival == [2]
    assert report.commits == ()
    assert rows(uri) == {200: "back", 300: "p300"}


@pytest.mark.req("MRG-21")
def test_merge_deletes_nothing_below_the_regions(tmp_path):
    uri = str(tmp_path / "t")
    insert_then_delete(uri)
    store = FaultyStore(BaseTable.open(uri).store)
    table = reopened(BaseTable.open(uri), store)

    report = Table(OpenTable.of(with_clock(table, ManualClock()))).run(MergeRequest())

    assert report.generations == 3
    assert store.count("get", "get_range") > 0
    deleted = [call.path for call in store.calls if call.operation in {"delete", "delete_directory"}]
    assert [path for path in deleted if path.startswith("_mem_wal")] == []
