"""Merging into real tables with pylance's merge: rows and progress, refusals, lost replies."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, Retries, StaleMergeError, TableState
from memwal_core.base_table.commit import native_merge
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.ids import RegionId
from testkit.tables.people import make_people_table, people

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))


def names(table: BaseTable) -> dict[int, str]:
    rows = table.dataset().to_table(columns=["id", "name"]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def keys(*ids: int) -> pa.Table:
    return people(*ids).select(["id"])


@pytest.mark.req("MRG-06")
def test_rows_and_progress_of_two_regions_land_in_one_version(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2), storage_options=place.storage_options)

    result = table.merge_upsert(people(2, 3, name="new"), {A: 3, B: 1})

    assert (result.version, result.rows_updated, result.rows_inserted, result.rows_deleted) == (3, 1, 1, 0)
    assert not result.settled
    assert names(table) == {1: "p1", 2: "new", 3: "new"}
    assert table.state().require_details().merged_generations == {A: 3, B: 1}
    before = table.state(2)
    assert (before.num_rows, before.require_details().merged_generations) == (2, {})


def test_no_rows_still_record_progress(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))

    table.merge_upsert(people(), {A: 5})

    assert table.state().require_details().merged_generations == {A: 5}
    assert names(table) == {1: "p1"}


@pytest.mark.req("MRG-20", "MRG-06")
@pytest.mark.parametrize("generation", [6, 7])
def test_generation_at_or_below_progress_is_stale_and_changes_nothing(tmp_path: Path, generation: int) -> None:
    """Bug class 3: a late merger's rows must not land under another merger's progress."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    table.merge_upsert(people(1, name="newest"), {A: 7})

    with pytest.raises(StaleMergeError) as caught:
        table.merge_upsert(people(1, name="old"), {A: generation})

    assert isinstance(caught.value, ConflictError)
    assert {name: caught.value.facts[name] for name in ("region_id", "proposed", "recorded")} == {
        "region_id": str(A),
        "proposed": generation,
        "recorded": 7,
    }
    assert names(table) == {1: "newest"}
    assert table.state().version == 3


@pytest.mark.req("MRG-06")
def test_one_stale_region_refuses_the_rows_of_all(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    table.merge_upsert(people(1), {A: 7})

    with pytest.raises(StaleMergeError):
        table.merge_upsert(people(2), {A: 7, B: 1})
    assert names(table) == {1: "p1"}
    assert table.state().require_details().merged_generations == {A: 7}


def test_repeated_new_key_is_refused_before_lance_inserts_it_twice(tmp_path: Path) -> None:
    """Bug class 7: physical duplicates from several generations in one merge."""
    table = make_people_table(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="more than once"):
        table.merge_upsert(people(4, 4), {A: 1})
    assert table.state().version == 2


def test_deletes_remove_known_keys_and_ignore_others(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2, 3), storage_options=place.storage_options)

    result = table.merge_delete(keys(2, 9), read_version=2, marks={A: 1})

    assert (result.version, result.rows_deleted) == (3, 1)
    assert names(table) == {1: "p1", 3: "p3"}
    assert table.state().require_details().merged_generations == {A: 1}


def test_late_delete_pass_does_not_remove_a_key_that_came_back(tmp_path: Path) -> None:
    """Bug class 10: pinned to the checked version, a late merger's tombstone is refused."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    checked = table.state().version
    table.merge_delete(keys(2), read_version=checked)
    table.merge_upsert(people(2, name="back"), {A: 2})

    with pytest.raises(ConflictError):
        table.merge_delete(keys(2), read_version=checked)
    assert names(table) == {1: "p1", 2: "back"}


def test_delete_pass_run_on_the_newest_version_removes_the_key_that_came_back(tmp_path: Path) -> None:
    """Negative control: the same history without the pin loses an acknowledged row."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    checked = table.dataset()
    table.merge_delete(keys(2), read_version=checked.version)
    table.merge_upsert(people(2, name="back"), {A: 2})

    native_merge.delete(checked, ["id"], keys(2), {}, Retries(conflicts=10))

    assert names(table) == {1: "p1"}


def test_late_pinned_upsert_of_the_same_new_key_is_refused(tmp_path: Path) -> None:
    """Bug class 8: two mergers that insert one new key must not leave it twice."""
    table = make_people_table(str(tmp_path / "t"))
    table.merge_upsert(people(5, name="first"), {A: 1}, read_version=2)

    with pytest.raises(ConflictError):
        table.merge_upsert(people(5, name="late"), {B: 1}, read_version=2)
    assert names(table) == {5: "first"}
    assert table.state().require_details().merged_generations == {A: 1}


def test_merge_into_the_newest_version_reruns_after_a_conflict(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    late = table.dataset()
    table.merge_upsert(people(5, name="first"), {A: 1})

    native_merge.upsert(late, ["id"], people(5, name="second"), {B: 1}, native_merge.UNPINNED)

    assert names(table) == {5: "second"}
    assert table.state().require_details().merged_generations == {A: 1, B: 1}


def test_merge_into_a_version_that_is_gone_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        make_people_table(str(tmp_path / "t")).merge_upsert(people(1), read_version=17)


@pytest.mark.parametrize(
    "rows",
    [
        people(1).append_column("extra", pa.array([1])),
        people(1).set_column(2, "score", pa.array(["text"])),
    ],
)
def test_rows_of_another_schema_are_refused(tmp_path: Path, rows: pa.Table) -> None:
    """Bug class 32: a drifted generation fails with a clear reason and changes nothing."""
    table = make_people_table(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="different schema") as caught:
        table.merge_upsert(rows, {A: 1})
    assert ".rs" not in str(caught.value)
    assert table.state().version == 2


def test_progress_on_a_table_without_index_is_refused(tmp_path: Path) -> None:
    """Bug class 5: Lance refuses progress without an index, and so do we."""
    lance.write_dataset(people(1), str(tmp_path / "t"))
    table = BaseTable.open(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="__lance_mem_wal"):
        table.merge_upsert(people(2), {A: 1})
    assert table.state().version == 1


class _LosesReplies(BaseTable):
    """A table whose merges fail as if the store had not answered, before or after the commit."""

    lands = True

    def _merge(self, run: Any, *arguments: Any) -> Any:
        def failing(*inner: Any) -> Any:
            if self.lands:
                run(*inner)
            raise UnavailableError("no answer", remedy="try again")

        return super()._merge(failing, *arguments)


def test_merge_whose_reply_was_lost_is_found_by_its_marks(tmp_path: Path) -> None:
    """Bug class 28: read back by the marks before calling a commit failed."""
    table = make_people_table(str(tmp_path / "t"), rows=people(1))

    result = _LosesReplies(table.store).merge_upsert(people(2), {A: 1, B: 4})

    assert (result.settled, result.version, result.rows_inserted) == (True, 3, None)
    assert names(table) == {1: "p1", 2: "p2"}


@pytest.mark.parametrize("marks", [{A: 1}, {}])
def test_merge_that_never_landed_stays_an_error(tmp_path: Path, marks: dict[RegionId, int]) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    failing = _LosesReplies(table.store)
    failing.lands = False

    with pytest.raises((UnavailableError, CommitUnknownError)):
        failing.merge_upsert(people(2), marks)
    assert names(table) == {1: "p1"}


def _fragments_without(dataset: lance.LanceDataset, ids: Sequence[int]) -> tuple[list[int], list[Any]]:
    removed, updated = [], []
    listed = ", ".join(map(str, ids))
    for fragment in dataset.get_fragments():
        if fragment.count_rows(f"id IN ({listed})"):
            rest = fragment.delete(f"id IN ({listed})")
            if rest is None:
                removed.append(fragment.fragment_id)
            else:
                updated.append(rest)
    return removed, updated


def _single_commit(table: BaseTable, read: TableState, upserts: pa.Table, deletes: Sequence[int], marks: Any) -> int:
    """Merge upserts, deletes and progress in one commit, as the distributed merge does."""
    dataset = table.dataset(read.version)
    new = lance.fragment.write_fragments(
        upserts, table.uri, schema=upserts.schema, mode="append", storage_options=dict(table.storage_options)
    )
    removed, updated = _fragments_without(dataset, [*upserts["id"].to_pylist(), *deletes])
    operation = lance.LanceOperation.Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=new,
        fields_modified=[],
        fields_for_preserving_frag_bitmap=list(read.field_ids.values()),
        update_mode="rewrite_rows",
    )
    return table.strict_commit(operation, read=read, change=marks, message="merge")


def _marking(**marks: int) -> Any:
    regions = {"a": A, "b": B}
    return lambda details: replace(
        details,
        merged_generations={**details.merged_generations, **{regions[name]: mark for name, mark in marks.items()}},
    )


@pytest.mark.req("MRG-06", "IDX-27")
def test_upserts_deletes_and_progress_land_together_in_a_strict_commit(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2, 3), storage_options=place.storage_options)
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    read = table.state()

    version = _single_commit(table, read, people(2, 4, name="new"), [3], _marking(a=3, b=1))

    assert version == read.version + 1
    assert names(table) == {1: "p1", 2: "new", 4: "new"}
    assert table.state().require_details().merged_generations == {A: 3, B: 1}
    table.dataset().validate()
    assert table.dataset().count_rows("name = 'new'") == 2
    table.dataset().optimize.optimize_indices()
    assert table.state().require_details().index_catchup == {"name_idx": {A: 3, B: 1}}
    with pytest.raises(StaleMergeError):
        table.merge_upsert(people(9), {A: 3})
    table.merge_upsert(people(9), {A: 4})


@pytest.mark.req("MRG-06", "MRG-20")
def test_strict_commit_of_rows_after_a_rival_changes_nothing(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2), storage_options=place.storage_options)
    read = table.state()
    table.merge_upsert(people(2, name="rival"), {A: 1})

    with pytest.raises(ConflictError):
        _single_commit(table, read, people(2, name="late"), [1], _marking(a=1))
    assert names(table) == {1: "p1", 2: "rival"}
    assert table.state().version == read.version + 1


@pytest.mark.req("MRG-06")
def test_pinned_native_merge_after_a_strict_commit_is_refused(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    read = table.state()
    _single_commit(table, read, people(2, 7, name="strict"), [1], _marking(a=1))

    for rows in (people(2, name="late"), people(7, name="late")):
        with pytest.raises(ConflictError):
            table.merge_upsert(rows, {B: 1}, read_version=read.version)
    assert names(table) == {2: "strict", 7: "strict"}


def test_strict_commit_that_lowers_progress_is_refused(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    table.merge_upsert(people(2), {A: 5})
    read = table.state()

    with pytest.raises(InvalidRequestError, match="cannot go back"):
        _single_commit(table, read, people(3), [], _marking(a=4))
    assert table.state().version == read.version


def test_error_of_a_merge_survives_the_way_to_another_process(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))
    table.merge_upsert(people(1), {A: 7})
    with pytest.raises(MemwalError) as caught:
        table.merge_upsert(people(1), {A: 7})

    again = pickle.loads(pickle.dumps(caught.value))

    assert type(again) is StaleMergeError
    assert again.facts == caught.value.facts
