"""Rows, deletions and progress in one strict commit, beside pylance's own merges."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable, TableState
from memwal_core.errors import ConflictError, InvalidRequestError, MemwalError
from memwal_core.ids import RegionId
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import make_people_table, people

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))


def names(table: BaseTable) -> dict[int, str]:
    rows = table.dataset().to_table(columns=["id", "name"]).to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


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
    return table.strict_commit(operation, read=read, change=marks, message="merge").version


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
    with pytest.raises(MemwalError, match="Stale SSTable"):
        merge_natively(table, people(9), {A: 3})
    merge_natively(table, people(9), {A: 4})


@pytest.mark.req("MRG-06", "MRG-20")
def test_strict_commit_of_rows_after_a_rival_changes_nothing(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2), storage_options=place.storage_options)
    read = table.state()
    merge_natively(table, people(2, name="rival"), {A: 1})

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
            merge_natively(table, rows, {B: 1}, read_version=read.version, retries=0)
    assert names(table) == {2: "strict", 7: "strict"}


def test_strict_commit_that_lowers_progress_is_refused(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1))
    merge_natively(table, people(2), {A: 5})
    read = table.state()

    with pytest.raises(InvalidRequestError, match="cannot go back"):
        _single_commit(table, read, people(3), [], _marking(a=4))
    assert table.state().version == read.version
