"""The single commit against rivals of every kind, in both orders, and against a store that loses replies."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import CompactedSsTable

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.row_changes import named_files
from memwal_core.errors import UnavailableError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.format.paths import table_manifest_path
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.merge.commit.passes import (
    MERGE_COMMIT,
    MERGE_COMMITTED,
    MERGE_SEARCHED,
    MERGE_WRITTEN,
)
from memwal_core.jobs.merge.commit.single_commit import SingleCommit
from memwal_core.jobs.merge.report import MergeReport
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.merge.run import MergeContext, merge
from memwal_core.jobs.merge.survey import MergeSurveyor
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.place import Engine
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.settings import MergeSettings, Settings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.failpoints import ArmedFailpoints, CallingFailpoints, SimulatedCrash
from testkit.faults.faulty_store import FaultyStore, Moment, Rule
from testkit.faults.rival_mergers import WAYS, Silent, Way, commit_here, merge_until
from testkit.rng import seeded_rng
from testkit.tables.native_regions import Delete, Put, native_region_id, write_native_generations
from testkit.tables.people import PEOPLE, people, reopened

OURS, OTHER = native_region_id(1), native_region_id(2)
KEYS = pa.schema([PEOPLE.field("id")])


def keys(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids)}, schema=KEYS)


class CountingSharing(Sharing):
    """Notes which units and fragments were worked on."""

    def __init__(self, table: BaseTable) -> None:
        super().__init__(JobContext(OpenTable.of(table)), Engine.LOCAL, MergeRequest())
        self.written: list[int] = []
        self.searched: list[list[int]] = []

    def stream(self, stage: str, task: Any, shares: Sequence[Any]) -> Iterator[Any]:
        if stage == "write winners":
            self.written.extend(unit.number for unit in shares)
        else:
            self.searched.append(sorted(each.fragment_id for unit in shares for each in unit.fragments))
        return super().stream(stage, task, shares)


class Run:
    """One merge with the single commit, whose failpoints can let a rival go first."""

    def __init__(self, table: BaseTable, failpoints: Failpoints = NO_FAILPOINTS, **settings: int) -> None:
        self.table = table
        self.sharing = CountingSharing(table)
        chosen = MergeSettings(join_max_bytes=0, **settings)
        clock, rng = ManualClock(), seeded_rng(3)
        self.context = MergeContext(
            table=table,
            surveyor=MergeSurveyor(table, table.store, Table.open(table.uri).opened.manifests, concurrency=2),
            settings=chosen,
            clock=clock,
            progress=Silent(),
            commit=SingleCommit(replace(commit_here(table, chosen, clock, rng, failpoints), sharing=self.sharing)),
        )

    def merge(self) -> MergeReport:
        return merge(self.context)


def rows(uri: str) -> dict[int, str]:
    dataset = lance.dataset(uri)
    dataset.validate()
    table = dataset.to_table()
    ids = table.column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, table.column("name").to_pylist(), strict=True))


def progress(uri: str) -> dict[object, int]:
    return dict(BaseTable.open(uri).state().require_details().merged_generations)


def unreferenced(uri: str) -> set[str]:
    """Data files and deletion vectors that no version names."""
    named: set[str] = set()
    for version in lance.dataset(uri).versions():
        named |= named_files(lance.dataset(uri, version=version["version"]))
    found = {str(path.relative_to(uri)) for part in ("data", "_deletions") for path in Path(uri, part).glob("*")}
    return found - named


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Base rows 0..39 in four fragments; generations of one region that update, insert and delete."""
    address = str(tmp_path / "t")
    lance.write_dataset(people(*range(40)), address, max_rows_per_file=10)
    BaseTable.open(address).create_mem_wal_index([])
    write_native_generations(
        address, OURS, [[Put(people(1, 11, 100, name="g1"))], [Delete(keys(2, 21)), Put(people(101, name="g2"))]]
    )
    return address


def merged_rows() -> dict[int, str]:
    expected = {number: f"p{number}" for number in range(40) if number not in {2, 21}}
    return expected | {1: "g1", 11: "g1", 100: "g1", 101: "g2"}


def native_marked(uri: str, region: object, generation: int, source: pa.Table, version: int | None = None) -> None:
    builder = (
        lance.dataset(uri, version=version).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    )
    builder.use_index(False).mark_sstables_as_compacted([CompactedSsTable(str(region), generation)]).execute(source)


@pytest.mark.req("MRG-10", "MRG-11", "MRG-14", "MRG-15", "MRG-16")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [MERGE_WRITTEN, MERGE_SEARCHED, MERGE_COMMIT])
def test_rival_that_merges_the_same_region_first_makes_ours_give_way(uri, way, place):
    rival = ArmedFailpoints().arm(place, lambda: merge_until(uri, way=way))

    report = Run(BaseTable.open(uri), rival).merge()

    assert (report.outcome, report.overtaken) == (JobOutcome.NOTHING_TO_DO, 1)
    assert rows(uri) == merged_rows()
    assert progress(uri) == {OURS: 2}
    assert unreferenced(uri) == set()


@pytest.mark.req("MRG-20", "MRG-23")
@pytest.mark.parametrize("way", WAYS)
def test_rival_that_merged_fewer_generations_leaves_the_rest_to_us(uri, way):
    stopped = ArmedFailpoints().arm(MERGE_COMMIT, lambda: merge_one_generation(uri, way))

    report = Run(BaseTable.open(uri), stopped).merge()

    assert report.overtaken == 1
    assert [commit.marks for commit in report.commits] == [{OURS: 2}]
    assert rows(uri) == merged_rows()
    assert unreferenced(uri) == set()


@pytest.mark.req("BLD-14", "MRG-16", "MRG-23")
def test_version_that_is_removed_before_the_commit_costs_an_attempt(uri):
    """It ended the merge with ``UnavailableError``: the commit could not find the version it was made from."""

    def move_on() -> None:
        lance.dataset(uri).update({"name": "'rival'"}, where="id = 30")
        lance.dataset(uri).cleanup_old_versions(older_than=timedelta(0))

    report = Run(BaseTable.open(uri), ArmedFailpoints().arm(MERGE_COMMIT, move_on)).merge()

    assert (report.outcome, [commit.attempts for commit in report.commits]) == (JobOutcome.DONE, [2])
    assert rows(uri) == merged_rows() | {30: "rival"}
    assert progress(uri) == {OURS: 2}


def merge_one_generation(uri: str, way: Way) -> None:
    with pytest.raises(SimulatedCrash):
        merge_until(uri, ArmedFailpoints().arm(MERGE_COMMITTED), max_generations=1, way=way)


RIVALS: dict[str, Callable[[str], object]] = {
    "update of a row that is superseded": lambda uri: lance.dataset(uri).update({"name": "'rival'"}, where="id = 1"),
    "delete of a row that is superseded": lambda uri: lance.dataset(uri).delete("id = 11"),
    "append of a key that is inserted": lambda uri: lance.write_dataset(people(100, name="rival"), uri, mode="append"),
    "append of a key that is deleted later": lambda uri: lance.write_dataset(
        people(999, name="p999"), uri, mode="append"
    ),
    "compaction": lambda uri: lance.dataset(uri).optimize.compact_files(),
    "a new index": lambda uri: lance.dataset(uri).create_scalar_index("id", "BTREE"),
    "a marked merge of another region": lambda uri: native_marked(uri, OTHER, 1, people(500, name="other")),
    "a marked merge of another region into a row of ours": lambda uri: native_marked(
        uri, OTHER, 1, people(12, name="other")
    ),
}


@pytest.mark.req("MRG-12")
@pytest.mark.parametrize("rival", RIVALS.values(), ids=RIVALS)
def test_commit_of_somebody_else_in_between_is_kept_and_ours_follows_it(uri, rival):
    run = Run(BaseTable.open(uri), ArmedFailpoints().arm(MERGE_COMMIT, lambda: rival(uri)))
    before = set(progress(uri))

    report = run.merge()

    assert before == set()
    assert [commit.attempts for commit in report.commits] == [2]
    found = rows(uri)
    others = {key: name for key, name in found.items() if key not in merged_rows() or name == "other"}
    assert {**found, **{key: merged_rows()[key] for key in others if key in merged_rows()}} == {
        **merged_rows(),
        **{key: name for key, name in others.items() if key not in merged_rows()},
    }
    assert set(others) <= {500, 999, 12}
    assert progress(uri)[OURS] == 2
    assert report.leftovers == ()
    assert unreferenced(uri) == set()


def test_refused_attempt_searches_only_fragments_that_changed_and_writes_nothing_again(uri):
    run = Run(
        BaseTable.open(uri),
        ArmedFailpoints().arm(MERGE_COMMIT, lambda: lance.dataset(uri).update({"name": "'rival'"}, where="id = 1")),
    )
    fragments = [fragment.fragment_id for fragment in lance.dataset(uri).get_fragments()]

    run.merge()

    assert run.sharing.written == [0]
    assert run.sharing.searched[0] == fragments
    # The fragment of the updated row has a new deletion vector, and the row moved into a new fragment.
    assert run.sharing.searched[1] == [fragments[0], max(fragments) + 1]


def test_region_that_a_rival_merged_is_dropped_and_the_others_are_committed(uri):
    write_native_generations(uri, OTHER, [[Put(people(30, 300, name="o1"))], [Delete(keys(31))]])
    run = Run(
        BaseTable.open(uri),
        ArmedFailpoints().arm(MERGE_COMMIT, lambda: native_marked(uri, OTHER, 2, people(30, 300, name="o1"))),
        unit_bytes=1,
    )

    report = run.merge()

    assert [commit.marks for commit in report.commits] == [{OURS: 2}]
    assert run.sharing.written == [0, 1]
    assert progress(uri) == {OURS: 2, OTHER: 2}
    assert rows(uri) == merged_rows() | {30: "o1", 300: "o1"}
    assert unreferenced(uri) == set()


def test_unit_with_a_region_that_a_rival_merged_is_planned_anew_without_it(uri):
    write_native_generations(uri, OTHER, [[Put(people(30, name="o1"))]])
    run = Run(
        BaseTable.open(uri),
        ArmedFailpoints().arm(MERGE_COMMIT, lambda: native_marked(uri, OTHER, 1, people(30, name="o1"))),
    )

    report = run.merge()

    assert report.overtaken == 1
    assert [commit.marks for commit in report.commits] == [{OURS: 2}]
    assert rows(uri) == merged_rows() | {30: "o1"}
    assert unreferenced(uri) == set()


@pytest.mark.req("MRG-12")
def test_rivals_that_win_every_attempt_end_in_a_conflict_without_a_trace(uri):
    def always(place: Failpoint) -> None:
        if place == MERGE_COMMIT:
            lance.dataset(uri).update({"name": "'rival'"}, where="id = 39")

    report = Run(BaseTable.open(uri), CallingFailpoints(always), max_attempts=3).merge()

    assert report.outcome is JobOutcome.CONFLICT
    assert "won every attempt" in report.reason
    assert progress(uri) == {}
    assert rows(uri)[1] == "p1"
    assert unreferenced(uri) == set()


LATE = {
    "the same rows": people(1, 11, 100, name="late"),
    "other rows of one fragment": people(3, name="late"),
    "the same new key": people(100, name="late"),
    "another new key": people(700, name="late"),
}


@pytest.mark.req("MRG-20")
@pytest.mark.parametrize("source", LATE.values(), ids=LATE)
@pytest.mark.parametrize("region", [OURS, OTHER], ids=["same region", "other region"])
@pytest.mark.parametrize("retries", [0, 10])
def test_merge_of_pylance_pinned_before_ours_never_makes_a_duplicate_or_takes_progress_back(
    uri, source, region, retries
):
    pinned = lance.dataset(uri)
    Run(BaseTable.open(uri)).merge()
    late = pinned.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().use_index(False)
    late = late.mark_sstables_as_compacted([CompactedSsTable(str(region), 1)]).conflict_retries(retries)

    if region == OURS or retries == 0:
        with pytest.raises(OSError, match=r"Stale SSTable|Too many concurrent writers|conflict"):
            late.execute(source)
        assert rows(uri) == merged_rows()
        assert progress(uri) == {OURS: 2}
    else:
        late.execute(source)
        assert rows(uri) == merged_rows() | dict.fromkeys(source.column("id").to_pylist(), "late")
        assert progress(uri) == {OURS: 2, OTHER: 1}


def test_pylance_refuses_the_recorded_generation_and_accepts_the_next(uri):
    Run(BaseTable.open(uri)).merge()

    with pytest.raises(OSError, match="Stale SSTable compaction"):
        native_marked(uri, OURS, 2, people(1))
    native_marked(uri, OURS, 3, people(1, name="next"))

    assert rows(uri)[1] == "next"
    assert progress(uri) == {OURS: 3}


def is_version(path: str) -> bool:
    return path.startswith("_versions/") and path.endswith(".manifest")


def is_next(uri: str) -> Callable[[str], bool]:
    path = table_manifest_path(lance.dataset(uri).version + 1)
    return lambda found: found == path


def test_lost_reply_of_the_commit_is_settled_by_reading_back(uri):
    store = FaultyStore(BaseTable.open(uri).store)
    store.lose_reply("put_if_absent", path=is_version)
    store.fail("get", path=is_next(uri))

    report = Run(reopened(BaseTable.open(uri), store)).merge()

    assert report.outcome is JobOutcome.DONE
    assert [commit.settled for commit in report.commits] == [True]
    assert rows(uri) == merged_rows()
    assert unreferenced(uri) == set()


def test_commit_that_nobody_can_tell_about_deletes_nothing_and_names_what_it_left(uri):
    store = FaultyStore(BaseTable.open(uri).store)
    store.fail("put_if_absent", path=is_version)

    report = Run(reopened(BaseTable.open(uri), store)).merge()

    assert report.outcome is JobOutcome.CONFLICT
    assert set(report.leftovers) == unreferenced(uri)
    assert len(report.leftovers) >= 3
    assert rows(uri)[1] == "p1"
    assert Run(BaseTable.open(uri)).merge().outcome is JobOutcome.DONE
    assert rows(uri) == merged_rows()


def test_commit_that_landed_while_the_store_was_silent_keeps_its_files(uri):
    store = FaultyStore(BaseTable.open(uri).store)
    silence = store.lose_reply("put_if_absent", path=is_version)
    store.fail("get", path=is_next(uri))

    def silent_afterwards(path: str) -> bool:
        return is_version(path) and silence.matched > 0

    store.fail("head", path=silent_afterwards, times=None)

    report = Run(reopened(BaseTable.open(uri), store)).merge()

    assert report.outcome is JobOutcome.CONFLICT
    assert rows(uri) == merged_rows()
    assert Run(BaseTable.open(uri)).merge().outcome is JobOutcome.NOTHING_TO_DO
    assert unreferenced(uri) == set()


def test_store_that_fails_during_the_search_leaves_no_file(uri):
    store = FaultyStore(BaseTable.open(uri).store)
    store.fail("put_if_absent", path=lambda path: path.startswith("_deletions/"), nth=2)

    with pytest.raises(Exception, match="did not answer"):
        Run(reopened(BaseTable.open(uri), store)).merge()

    assert progress(uri) == {}
    assert Run(BaseTable.open(uri)).merge().outcome is JobOutcome.DONE
    assert rows(uri) == merged_rows()


def test_files_that_cannot_be_removed_are_reported(uri):
    store = FaultyStore(BaseTable.open(uri).store)
    store.fail("delete", path=lambda path: path.startswith("_deletions/"), times=None)
    run = Run(
        reopened(BaseTable.open(uri), store),
        ArmedFailpoints().arm(MERGE_COMMIT, lambda: lance.dataset(uri).update({"name": "'rival'"}, where="id = 1")),
    )

    report = run.merge()

    assert report.outcome is JobOutcome.DONE
    assert len(report.leftovers) == 1
    assert set(report.leftovers) == unreferenced(uri)
    assert report.to_dict()["leftovers"] == list(report.leftovers)


def test_compaction_right_after_the_commit_does_not_make_clean_up_take_files_of_the_version_made(uri):
    version = lance.dataset(uri).version

    rival = ArmedFailpoints().arm(MERGE_COMMITTED, lambda: lance.dataset(uri).optimize.compact_files())
    Run(BaseTable.open(uri), rival).merge()

    made = lance.dataset(uri, version=version + 1).to_table()
    assert dict(zip(made["id"].to_pylist(), made["name"].to_pylist(), strict=True)) == merged_rows()


def test_settings_choose_how_rows_are_prepared_and_the_report_says_why(uri):
    plain = native_region_id(9)
    admin = Table.open(uri, settings=Settings())

    first = admin.run(MergeRequest())
    write_native_generations(uri, plain, [[Put(people(600))]])
    second = admin.run(MergeRequest())

    assert (first.place.on_executors, first.commits[0].place) == (False, first.place)
    assert "tombstones" in first.strategy.reason
    assert "joined by Lance" in second.strategy.reason


def test_error_after_the_commit_landed_leaves_the_files_of_the_version_made(uri):
    """Files that only the version made names, and no later one, were removed after an error behind the commit."""
    version = lance.dataset(uri).version
    table = BaseTable.open(uri)

    def compacted_and_silent() -> None:
        lance.dataset(uri).optimize.compact_files()
        raise UnavailableError("no answer", remedy="try again")

    with pytest.raises(UnavailableError):
        Run(table, ArmedFailpoints().arm(MERGE_COMMITTED, compacted_and_silent)).merge()

    made = lance.dataset(uri, version=version + 1).to_table()
    assert dict(zip(made["id"].to_pylist(), made["name"].to_pylist(), strict=True)) == merged_rows()


def test_rival_with_the_same_marks_is_not_taken_for_our_lost_commit(uri):
    """A commit of unknown outcome was settled by its marks, which a rival of the same plan has as well."""
    other = f"{uri}-of-the-rival"
    shutil.copytree(uri, other)
    merge_until(other)
    store = FaultyStore(BaseTable.open(uri).store)

    def rival_first(_: object) -> None:
        shutil.copytree(other, uri, dirs_exist_ok=True)
        raise UnavailableError("no answer", remedy="try again")

    store.add(Rule(rival_first, Moment.BEFORE, frozenset({"put_if_absent"}), is_next(uri)))
    silent = store.fail("get", path=is_next(uri))

    report = Run(reopened(BaseTable.open(uri), store)).merge()

    assert silent.matched > 0
    assert (report.commits, report.overtaken, report.outcome) == ((), 1, JobOutcome.NOTHING_TO_DO)
    assert rows(uri) == merged_rows()
    assert unreferenced(uri) == set()
