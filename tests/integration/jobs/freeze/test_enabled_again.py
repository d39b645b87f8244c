"""MemWAL enabled again, by our own call, on a table that was overwritten beside its regions."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.coordination.freeze import Choice, FreezeCause
from memwal_core.errors import CommitUnknownError, FrozenError, InvalidRequestError
from memwal_core.format.paths import RECORD_DIRECTORY, TABLE_VERSIONS_DIRECTORY, manifest_path, region_directory
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.jobs.thaw.report import ThawReport
from memwal_core.jobs.thaw.run import Decision
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, WriterSettings
from memwal_core.table import Table
from testkit.clock import ManualClock
from testkit.faults.faulty_store import WRITES, Call, FaultyStore, Moment, Rule
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.native_regions import (
    Put,
    make_table_divided_by,
    native_region_id,
    write_native_generations,
)
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people, reopened
from tests.integration.jobs.freeze.histories import overwrite, rows_of

BUCKETS = 3
ID = pa.field("id", pa.int64(), nullable=False)
AGE_S = 60.0
QUIET = Settings(writer=WriterSettings(background_flush=False, max_memtable_age_s=AGE_S))
"""A writer flushes rows of that age when it closes."""


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Return a table with two generations, of which one is merged, whose content was replaced by key 7."""
    uri = str(tmp_path / "t.lance")
    make_people_table(uri, buckets=BUCKETS)
    put(uri, 1, 2, name="merged")
    assert Table.open(uri).run(MergeRequest()).outcome is JobOutcome.DONE
    put(uri, 2, 3, name="waits")
    overwrite(uri, people(1, 7, name="replaced"))
    return uri


def put(uri: str, *ids: int, name: str) -> None:
    with Table.open(uri).writer() as writer:
        writer.put(people(*ids, name=name))
        writer.flush()


def thaw(uri: str, choice: Choice) -> ThawReport:
    return Table.open(uri).thaw(Decision(choice, "someone", reason="the test says so"))


def merged(uri: str) -> dict[int, str]:
    assert Table.open(uri).run(MergeRequest()).outcome in {JobOutcome.DONE, JobOutcome.NOTHING_TO_DO}
    return dict(rows_of(uri))


@pytest.mark.parametrize(
    ("choice", "rows"),
    [
        (Choice.RESTORE_PROGRESS, {1: "replaced", 2: "waits", 3: "waits", 7: "replaced"}),
        (Choice.DISCARD_GENERATIONS, {1: "replaced", 7: "replaced"}),
        (Choice.MERGE_AGAIN, {1: "merged", 2: "waits", 3: "waits", 7: "replaced"}),
    ],
)
def test_one_decision_says_what_becomes_of_the_regions(uri: str, choice: Choice, rows: dict[int, str]) -> None:
    state = Table.open(uri).enable()

    assert state.require_details().region_specs == (bucket_spec(1, "id", state.field_ids, BUCKETS),)
    with pytest.raises(FrozenError) as caught:
        Table.open(uri).run(MergeRequest())
    assert caught.value.facts["causes"] == [FreezeCause.INDEX_GONE.value]

    assert thaw(uri, choice).outcome is JobOutcome.DONE
    assert Table.open(uri).opened.freezes.active() == ()
    assert merged(uri) == rows
    put(uri, 2, name="later")
    assert merged(uri) == {**rows, 2: "later"}


def test_table_that_another_program_divided_by_a_column_outside_of_the_key_is_divided_so_again(tmp_path: Path) -> None:
    table = make_table_divided_by("tenant", str(tmp_path / "t"), pa.schema([("tenant", pa.string())]))
    row = pa.table({"id": [1], "tenant": ["a"]}, schema=table.base.state().schema)
    with table.writer() as writer:
        writer.put(row)
        writer.flush()
    before = table.base.state().require_details().region_specs
    overwrite(table.uri, row)

    assert Table.open(table.uri).enable().require_details().region_specs == before


def test_what_was_merged_is_remembered_through_the_first_of_several_decisions(uri: str) -> None:
    """Accepting that the table went back forgot the progress, and restoring it then brought merged rows back."""
    for directory in ("_versions", "_transactions", "data"):
        shutil.rmtree(Path(uri) / directory)
    lance.write_dataset(people(1, 7, name="replaced"), uri)
    Table.open(uri).enable(key="id", regions=BUCKETS)

    for cause, choice in (
        (FreezeCause.TABLE_WENT_BACK, Choice.ACCEPT),
        (FreezeCause.INDEX_GONE, Choice.RESTORE_PROGRESS),
        (FreezeCause.PROGRESS_WENT_BACK, Choice.RESTORE_PROGRESS),
    ):
        decision = Decision(choice, "someone", cause)
        assert Table.open(uri).thaw(decision).outcome is JobOutcome.DONE

    assert Table.open(uri).opened.freezes.active() == ()
    assert merged(uri) == {1: "replaced", 2: "waits", 3: "waits", 7: "replaced"}


def test_progress_that_a_run_remembers_while_another_freezes_the_table_is_restored(tmp_path: Path) -> None:
    """The freeze names what was remembered before, and nothing else knows of a merge that nobody had seen by then."""
    uri, region_id = str(tmp_path / "t.lance"), native_region_id(1)
    table = make_people_table(uri)
    write_native_generations(uri, region_id, [[Put(people(1, name="first"))]])
    Table.open(uri).run(MergeRequest())
    write_native_generations(uri, region_id, [[Put(people(2, name="second"))]])
    merge_natively(table, people(2, name="second"), {region_id: 2})
    store = FaultyStore(table.store)

    def another_freezes(_: Call) -> None:
        overwrite(uri, people(7, name="replaced"))
        with pytest.raises(FrozenError):
            Table.open(uri).run(MergeRequest())

    store.add(Rule(another_freezes, Moment.BEFORE, WRITES, lambda path: path.startswith(RECORD_DIRECTORY)))
    Table(OpenTable.of(reopened(table, store))).run(SnapshotRequest())

    (freeze,) = Table.open(uri).opened.freezes.active()
    assert freeze.evidence["merged_before"] == {str(region_id): 1}
    Table.open(uri).enable()
    assert thaw(uri, Choice.RESTORE_PROGRESS).outcome is JobOutcome.DONE
    assert merged(uri) == {7: "replaced"}


@pytest.mark.parametrize("what", ["manifest", "directory"])
@pytest.mark.parametrize(
    ("choice", "waits"), [(Choice.RESTORE_PROGRESS, {2: "waits", 3: "waits"}), (Choice.DISCARD_GENERATIONS, {})]
)
def test_decision_holds_for_regions_that_are_mended_after_it(
    uri: str, tmp_path: Path, choice: Choice, waits: dict[int, str], what: str
) -> None:
    """Their progress stayed at none, so that all of them was merged again."""
    Table.open(uri).enable()
    manifests = Table.open(uri).opened.manifests
    lost = [Path(uri) / region_directory(each) for each in manifests.region_ids()]
    if what == "manifest":
        newest = manifests.load_many(manifests.region_ids())
        lost = [Path(uri) / manifest_path(each.region_id, each.version) for each in newest]
    for number, path in enumerate(lost):
        path.rename(tmp_path / str(number))
        if what == "manifest":
            path.write_bytes(bytes(100))

    decision = Decision(choice, "someone", FreezeCause.INDEX_GONE)
    assert Table.open(uri).thaw(decision).outcome is JobOutcome.DONE

    for number, path in enumerate(lost):
        (tmp_path / str(number)).rename(path)
    if what == "directory":
        Table.open(uri).thaw(Decision(Choice.ACCEPT, "someone", FreezeCause.REGION_VANISHED))
    assert Table.open(uri).opened.freezes.active() == ()
    assert merged(uri) == {1: "replaced", 7: "replaced", **waits}


def test_generations_that_nothing_tells_are_not_discarded_blindly(uri: str) -> None:
    manifests = Table.open(uri).opened.manifests
    first = manifests.region_ids()[0]
    path = Path(uri) / manifest_path(first, manifests.load(first).version)
    good = path.read_bytes()
    path.write_bytes(bytes(100))
    Table.open(uri).enable()

    blocked = thaw(uri, Choice.DISCARD_GENERATIONS)

    assert blocked.outcome is JobOutcome.BLOCKED
    assert f"region {first}: it cannot be read" in blocked.why()
    path.write_bytes(good)
    assert thaw(uri, Choice.RESTORE_PROGRESS).outcome is JobOutcome.DONE
    assert merged(uri) == {1: "replaced", 2: "waits", 3: "waits", 7: "replaced"}


def test_key_and_columns_that_have_other_ids_now_are_found_by_name(uri: str) -> None:
    rows = pa.table({"added": [0.5], "id": pa.array([7], pa.int64()), "name": ["new"], "score": [1.0]})
    overwrite(uri, rows)

    state = Table.open(uri).enable()

    assert state.primary_key.columns == ("id",)
    assert state.require_details().region_specs == (bucket_spec(1, "id", state.field_ids, BUCKETS),)
    assert state.field_ids["id"] != 0


def test_another_division_is_refused_and_nothing_is_frozen(uri: str) -> None:
    with pytest.raises(InvalidRequestError, match="divide the table in another way"):
        Table.open(uri).enable(regions=BUCKETS + 1)

    assert Table.open(uri).opened.freezes.active() == ()
    assert Table.open(uri).base.state().details is None


@pytest.mark.parametrize("has_a_key", [False, True])
def test_another_key_is_refused_and_nothing_is_written(uri: str, has_a_key: bool) -> None:
    """The rows that wait would replace other ones than those whose key they have."""
    named = pa.field("name", pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA if has_a_key else None)
    overwrite(uri, pa.table({"name": ["a"], "id": pa.array([7], pa.int64())}, schema=pa.schema([named, ID])))

    with pytest.raises(InvalidRequestError, match="another primary key") as caught:
        Table.open(uri).enable(key=() if has_a_key else "name")

    assert (caught.value.facts["former_key"], caught.value.facts["key"]) == (["id"], ["name"])
    assert Table.open(uri).opened.freezes.active() == ()
    assert Table.open(uri).base.state().primary_key.columns == (("name",) if has_a_key else ())


def test_dry_run_shows_the_division_and_writes_nothing(uri: str) -> None:
    before = Table.open(uri).base.state().version

    state = Table.open(uri).enable(dry_run=True)

    assert state.require_details().region_specs == (bucket_spec(1, "id", state.field_ids, BUCKETS),)
    assert Table.open(uri).opened.freezes.active() == ()
    assert Table.open(uri).base.state().version == before


def test_table_whose_past_nobody_knows_is_frozen_too(uri: str) -> None:
    for each in (Path(uri) / RECORD_DIRECTORY).iterdir():
        each.unlink()
    lance.dataset(uri).cleanup_old_versions(retain_versions=1, delete_unverified=True)

    Table.open(uri).enable(regions=BUCKETS)

    with pytest.raises(FrozenError):
        Table.open(uri).run(MergeRequest())
    assert thaw(uri, Choice.DISCARD_GENERATIONS).outcome is JobOutcome.DONE
    assert merged(uri) == {1: "replaced", 7: "replaced"}


def test_call_that_ended_before_its_commit_left_the_table_frozen_and_is_made_again(uri: str) -> None:
    base = Table.open(uri).base
    store = FaultyStore(base.store)
    store.fail("put_if_absent", "put_file_if_absent", path=lambda path: path.startswith(TABLE_VERSIONS_DIRECTORY))
    with pytest.raises(CommitUnknownError):
        Table(OpenTable.of(reopened(base, store))).enable()
    assert [each.cause for each in Table.open(uri).opened.freezes.active()] == [FreezeCause.INDEX_GONE]

    Table.open(uri).enable()

    assert thaw(uri, Choice.RESTORE_PROGRESS).outcome is JobOutcome.DONE
    assert merged(uri) == {1: "replaced", 2: "waits", 3: "waits", 7: "replaced"}


def test_writer_that_cannot_flush_for_want_of_the_index_releases_its_region(tmp_path: Path) -> None:
    uri = str(tmp_path / "t.lance")
    make_people_table(uri, buckets=1)
    clock = ManualClock()
    writer = Table.open(uri, settings=QUIET, clock=clock).writer()
    writer.put(people(1, 2, name="waits"))
    clock.advance(AGE_S)
    overwrite(uri, people(7, name="replaced"))
    with pytest.raises(InvalidRequestError, match="MemWAL index is gone"):
        writer.close()

    Table.open(uri).enable()

    assert thaw(uri, Choice.MERGE_AGAIN).outcome is JobOutcome.DONE
    with Table.open(uri).writer(takeover="fail") as successor:
        successor.put(people(2, name="later"))
        successor.flush()
    assert merged(uri) == {1: "waits", 2: "later", 7: "replaced"}
