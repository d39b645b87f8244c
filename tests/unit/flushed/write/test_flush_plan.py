"""How the rows of WAL entries become fragments: large entries as they are, runs of small ones together (P5)."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memwal_core.deduplicate import key_order
from memwal_core.flushed.write.flush_plan import FlushPlan, divided, plan_flush
from memwal_core.ids import IdSource
from memwal_core.memtable import MemTable, StoredEntry, memtable_schema, with_tombstones
from testkit.rng import seeded_rng

SCHEMA = memtable_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]), ["id"])
LIMIT = 100


def entry(wal_id: int, rows: int, *, large: bool = False) -> StoredEntry:
    return StoredEntry(wal_id, rows, LIMIT if large else LIMIT - 1, (9, 9) if wal_id < 0 else None)


def shape(entries: list[StoredEntry], hidden: set[int] = frozenset()) -> list[tuple[int, int, int | None]]:
    """Return first row, physical rows and WAL id of each piece."""
    flags = np.zeros(sum(each.rows for each in entries), dtype=bool)
    flags[sorted(hidden)] = True
    pieces = divided(entries, flags, lambda each: each.file_version is None, LIMIT)
    return [(each.start, each.physical_rows, each.entry.wal_id if each.entry else None) for each in pieces]


def test_neighbouring_small_entries_become_one_piece_between_large_ones() -> None:
    entries = [entry(1, 1), entry(2, 2), entry(3, 5, large=True), entry(4, 1), entry(5, 1)]
    assert shape(entries) == [(0, 3, None), (3, 5, 3), (8, 2, None)]


def test_a_small_entry_alone_stays_as_it_is() -> None:
    entries = [entry(1, 5, large=True), entry(2, 1), entry(3, 5, large=True)]
    assert shape(entries) == [(0, 5, 1), (5, 1, 2), (6, 5, 3)]


def test_entries_without_rows_are_no_fragment_and_no_neighbour() -> None:
    assert shape([entry(1, 0), entry(2, 3), entry(3, 0)]) == [(0, 3, 2)]


def test_an_entry_that_cannot_be_shared_is_written_again_alone() -> None:
    assert shape([entry(-1, 3, large=True), entry(2, 3, large=True)]) == [(0, 3, None), (3, 3, 2)]


def test_hidden_rows_are_left_out_of_new_files_and_stay_in_shared_ones() -> None:
    entries = [entry(1, 2), entry(2, 2), entry(3, 3, large=True)]
    assert shape(entries, {0, 3, 5}) == [(0, 2, None), (4, 3, 3)]


def test_a_file_without_a_row_that_counts_is_no_fragment() -> None:
    entries = [entry(1, 2), entry(2, 2), entry(3, 3, large=True), entry(4, 1, large=True)]
    assert shape(entries, {0, 1, 2, 3, 4, 5, 6}) == [(7, 1, 4)]


def planned(batches: list[list[int]], large: list[bool]) -> FlushPlan:
    memtable = MemTable(1, SCHEMA, 0, datetime(2026, 1, 1, tzinfo=UTC))
    for number, (keys, is_large) in enumerate(zip(batches, large, strict=True), start=1):
        rows = pa.table({"id": pa.array(keys, pa.int64())})
        memtable.add(with_tombstones(rows, SCHEMA, deleted=False))
        memtable.mark_flushed(1, number, LIMIT if is_large else LIMIT - 1, f"{number:032x}")
    region_id = IdSource(seeded_rng(1)).region_id()
    return plan_flush(memtable, region_id, "d", ["id"], can_share=lambda _: True, pack_below_bytes=LIMIT)


@pytest.mark.req("WRT-59")
@given(st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.booleans()), min_size=1, max_size=8))
def test_each_key_has_one_row_that_counts_the_newest_and_the_keys_are_those_of_the_files(
    writes: list[tuple[list[int], bool]],
) -> None:
    batches, large = [list(each) for each in zip(*writes, strict=True)]
    keys = [key for batch in batches for key in batch]
    plan = planned(batches, large)
    physical, counting = [], []
    for piece in plan.pieces:
        for offset, hidden in enumerate(piece.hidden):
            number = piece.start + offset
            if piece.entry is not None or not hidden:
                physical.append(keys[number])
            if not hidden:
                counting.append(number)
    newest = {key: number for number, key in enumerate(keys)}
    assert counting == sorted(newest.values())
    assert plan.keys.column("id").to_pylist() == physical
    assert plan.physical_rows == len(physical)
    assert plan.superseded == len(keys) - len(newest)
    order = key_order(plan.keys, ["id"])
    assert order is not None
    assert plan.key_order is not None
    assert plan.key_order.tolist() == order.tolist()
