"""O4: duplicate keys of the base table are removed where the history proves which copy is the newest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import PEOPLE, people

REPAIR = RepairRequest(duplicates=True)


def make(uri: str, *, stable: bool) -> Table:
    lance.write_dataset(people(1, 2, 3, name="old"), uri, enable_stable_row_ids=stable)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 1)])
    return Table.open(uri)


@pytest.fixture(params=[False, True], ids=["plain", "stable-row-ids"])
def table(tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    return make(str(tmp_path / "t"), stable=request.param)


def append(table: Table, rows: pa.Table) -> None:
    lance.write_dataset(rows, table.uri, mode="append")


def rows_of(table: Table) -> list[tuple[int, str]]:
    found = lance.dataset(table.uri).to_table()
    return sorted(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def test_newest_copy_by_commit_stays(table: Table) -> None:
    append(table, people(2, 4, name="newer"))
    append(table, people(2, name="newest"))
    assert table.run(RepairRequest()).outcome is JobOutcome.NOTHING_TO_DO, "keys are counted on demand only"
    assert table.run(RepairRequest(duplicates=True, dry_run=True)).outcome is JobOutcome.PLANNED
    assert len(rows_of(table)) == 6
    report = table.run(REPAIR)
    assert report.outcome is JobOutcome.DONE
    assert rows_of(table) == [(1, "old"), (2, "newest"), (3, "old"), (4, "newer")]
    assert table.run(REPAIR).outcome is JobOutcome.NOTHING_TO_DO


def test_removed_rows_are_in_the_copy(table: Table) -> None:
    append(table, people(2, name="newest"))
    report = table.run(REPAIR)
    [kept] = (Path(table.uri) / str(report.backup)).glob("duplicate-rows.arrow")
    with pa.ipc.open_stream(kept.read_bytes()) as reader:
        rows = reader.read_all()
    assert sorted(rows.column("name").to_pylist()) == ["newest", "old"]
    assert set(PEOPLE.names) < set(rows.schema.names)


def test_rows_with_other_dictionaries_are_in_the_copy(tmp_path: Path) -> None:
    """Each file of Lance has its own; together they may have more values than their indices can count."""
    code = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("code", code)])

    def rows(name: str) -> pa.Table:
        codes = pa.array([f"{name} {number}" for number in range(100)]).dictionary_encode().cast(code)
        return pa.table([pa.array(range(100), pa.int64()), codes], schema=schema)

    lance.write_dataset(rows("old"), str(tmp_path / "t"))
    table = Table.open(str(tmp_path / "t"))
    table.enable(key="id")
    append(table, rows("newer"))

    report = table.run(REPAIR)

    assert report.outcome is JobOutcome.DONE
    assert lance.dataset(table.uri).to_table().column("code").to_pylist() == rows("newer").column("code").to_pylist()
    with pa.ipc.open_stream((Path(table.uri) / report.backup / "duplicate-rows.arrow").read_bytes()) as reader:
        kept = reader.read_all().column("code").to_pylist()
    assert sorted(kept) == sorted(rows("old").column("code").to_pylist() + rows("newer").column("code").to_pylist())


def test_copies_of_one_commit_are_left_to_a_person(table: Table) -> None:
    append(table, people(5, 5, name="same"))
    append(table, people(1, name="newest"))
    report = table.run(REPAIR)
    assert report.outcome is JobOutcome.BLOCKED
    assert "duplicate-keys" in report.why()
    assert rows_of(table) == [(1, "newest"), (2, "old"), (3, "old"), (5, "same"), (5, "same")]
    again = table.run(REPAIR)
    assert (again.outcome, again.done) == (JobOutcome.BLOCKED, ())


def test_two_newest_copies_of_one_commit_are_undecided_although_a_third_is_older(table: Table) -> None:
    append(table, people(1, 1, name="same"))
    assert table.run(REPAIR).done == ()
    assert len(rows_of(table)) == 5


def test_compaction_does_not_hide_the_order_on_tables_with_stable_row_ids(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"), stable=True)
    append(table, people(2, name="newest"))
    lance.dataset(table.uri).optimize.compact_files()
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert rows_of(table) == [(1, "old"), (2, "newest"), (3, "old")]


def test_rows_that_a_compaction_mixed_have_no_order(tmp_path: Path) -> None:
    """Without stable row ids Lance says of every row that version 1 wrote it, which proves nothing."""
    table = make(str(tmp_path / "t"), stable=False)
    append(table, people(2, name="newest"))
    lance.dataset(table.uri).optimize.compact_files()
    report = table.run(REPAIR)
    assert (report.outcome, report.done) == (JobOutcome.BLOCKED, ())
    assert len(rows_of(table)) == 4


def test_fragment_that_a_compaction_made_is_as_old_as_its_rows(tmp_path: Path) -> None:
    """Its own commit is the newest of all, and its rows are the oldest."""
    table = make(str(tmp_path / "t"), stable=False)
    append(table, people(4, name="old"))
    append(table, people(2, *range(10, 20), name="newest"))
    dataset = lance.dataset(table.uri)
    untouched = dataset.get_fragments()[2].fragment_id
    dataset.optimize.compact_files(target_rows_per_fragment=4)
    fragments = [each.fragment_id for each in lance.dataset(table.uri).get_fragments()]
    assert untouched in fragments
    assert max(fragments) > untouched
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    newest = [(number, "newest") for number in range(10, 20)]
    assert rows_of(table) == [(1, "old"), (2, "newest"), (3, "old"), (4, "old"), *newest]


def test_rows_from_before_the_oldest_retained_version_have_no_order_among_them(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"), stable=False)
    append(table, people(2, name="middle"))
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert table.run(REPAIR).outcome is JobOutcome.BLOCKED
    append(table, people(2, name="newest"))
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert rows_of(table) == [(1, "old"), (2, "newest"), (3, "old")]


def test_restored_fragment_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    table = make(str(tmp_path / "t"), stable=False)
    append(table, people(2, name="appended"))
    version = lance.dataset(table.uri).version
    lance.dataset(table.uri).delete("name = 'old'")
    old = lance.dataset(table.uri, version=version)
    old.restore()
    report = table.run(REPAIR)
    assert (report.outcome, report.done) == (JobOutcome.BLOCKED, ())
    assert len(rows_of(table)) == 4


def update_columns(table: Table) -> None:
    """Change row 2 of the first fragment as Lance's update of columns does: another file has the column's values."""
    dataset = lance.dataset(table.uri)
    rows = pa.table({"id": pa.array([2], pa.int64()), "name": ["changed"]})
    fragment, fields = dataset.get_fragments()[0].update_columns(rows, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update([], [fragment], [], fields, update_mode="rewrite_columns")
    lance.LanceDataset.commit(table.uri, operation, read_version=dataset.version)


def replace_file(table: Table) -> None:
    """Change the first fragment as Lance's replacement of data does: another file takes the place of its only one."""
    dataset = lance.dataset(table.uri)
    [written] = lance.fragment.write_fragments(people(1, 2, 3, name="changed"), table.uri, mode="append")
    group = lance.LanceOperation.DataReplacementGroup(dataset.get_fragments()[0].fragment_id, written.files[0])
    operation = lance.LanceOperation.DataReplacement([group])
    lance.LanceDataset.commit(table.uri, operation, read_version=dataset.version)


CHANGES = pytest.mark.parametrize("change", [update_columns, replace_file])


@CHANGES
def test_copy_that_was_changed_in_place_after_the_other_is_not_older(
    table: Table, change: Callable[[Table], None]
) -> None:
    """The copy that was written last by an update of columns was deleted, and called provably older."""
    append(table, people(2, name="appended"))
    change(table)
    report = table.run(REPAIR)
    assert (report.outcome, report.done) == (JobOutcome.BLOCKED, ())
    assert {(2, "appended"), (2, "changed")} < set(rows_of(table))


@CHANGES
def test_copy_that_was_changed_in_place_before_the_other_is_older(
    table: Table, change: Callable[[Table], None]
) -> None:
    change(table)
    append(table, people(2, name="appended"))
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert [name for number, name in rows_of(table) if number == 2] == ["appended"]


@pytest.mark.parametrize("then", ["compacted", "cleaned up"])
def test_change_in_place_is_not_forgotten(table: Table, then: str) -> None:
    append(table, people(2, name="appended"))
    update_columns(table)
    dataset = lance.dataset(table.uri)
    if then == "compacted":
        dataset.optimize.compact_files()
    else:
        dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    report = table.run(REPAIR)
    assert (report.outcome, report.done) == (JobOutcome.BLOCKED, ())


def test_column_that_was_added_does_not_hide_the_order(table: Table) -> None:
    append(table, people(2, name="appended"))
    lance.dataset(table.uri).add_columns(pa.field("more", pa.int64()))
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert rows_of(table) == [(1, "old"), (2, "appended"), (3, "old")]


def test_key_that_waits_in_a_memtable_is_cleaned_up_and_merged_right(table: Table) -> None:
    append(table, people(2, name="appended"))
    with TableWriter.open(table.base) as writer:
        writer.put(people(2, 3, name="memtable"))
        writer.flush()
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert rows_of(table) == [(1, "old"), (2, "appended"), (3, "old")]
    table.run(MergeRequest())
    assert rows_of(table) == [(1, "old"), (2, "memtable"), (3, "memtable")]


def test_merge_progress_is_kept(table: Table) -> None:
    with TableWriter.open(table.base) as writer:
        writer.put(people(9, name="merged"))
        writer.flush()
    table.run(MergeRequest())
    before = table.base.state().require_details().merged_generations
    append(table, people(9, name="newest"))
    assert table.run(REPAIR).outcome is JobOutcome.DONE
    assert table.base.state().require_details().merged_generations == before
