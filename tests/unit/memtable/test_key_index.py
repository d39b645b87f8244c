"""One contract for both key index engines, and the index of a MemTable that is being written."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.memtable import KeyIndexKind, MemTable, MemTableIndex, make_key_index, memtable_schema, with_tombstones

KINDS = pytest.mark.parametrize("kind", KeyIndexKind)
BATCHES = st.lists(st.lists(st.integers(-50, 50), max_size=20), max_size=8)
BASE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])
SCHEMA = memtable_schema(BASE, ["id"])


def _keys(values, data_type=None) -> pa.Table:
    return pa.table({"k": pa.array(values, data_type or pa.int64())})


def _filled(kind: KeyIndexKind, batches):
    index, row = make_key_index(kind), 0
    for batch in batches:
        index.add(_keys(batch), row)
        row += len(batch)
    return index


def _rows(*ids: int, v: str = "x") -> pa.Table:
    return with_tombstones(pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=BASE), SCHEMA, deleted=False)


def _memtable() -> MemTable:
    return MemTable(1, SCHEMA, 0, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.req("MEM-02", "MEM-03", "MEM-04", "MEM-10", "MEM-15")
@KINDS
@settings(derandomize=True, deadline=None)
@given(BATCHES, st.integers(-60, 60), st.integers(-60, 60))
def test_engine_finds_newest_rows_and_scans_in_order_like_a_dict(kind, batches, low, high) -> None:
    index = _filled(kind, batches)
    flat = [key for batch in batches for key in batch]
    newest = {key: row for row, key in enumerate(flat)}
    probes = list(range(-60, 60))
    assert index.search(_keys(probes)).tolist() == [newest.get(key, -1) for key in probes]
    assert list(index.scan()) == sorted(newest.items())
    assert list(index.scan(low, high)) == sorted((k, r) for k, r in newest.items() if low <= k <= high)
    assert len(index) == len(newest)


@pytest.mark.req("MEM-04", "MEM-31")
@KINDS
@pytest.mark.parametrize(
    "values",
    [[b"\xff", b"", b"a"], ["é", "z", "", "𝄞", "\uffff"], [True, False]],
    ids=["binary", "text", "boolean"],
)
def test_keys_are_ordered_by_their_bytes_and_come_back_as_they_were(kind, values) -> None:
    index = make_key_index(kind)
    index.add(pa.table({"k": values}), 0)
    expected = sorted(values, key=lambda value: value.encode() if isinstance(value, str) else value)
    assert [key for key, _ in index.scan()] == expected


@KINDS
def test_composite_keys_are_ordered_column_by_column(kind) -> None:
    index = make_key_index(kind)
    index.add(pa.table({"a": [2, 1, 1], "b": ["a", "b", "a"]}), 10)
    assert list(index.scan()) == [((1, "a"), 12), ((1, "b"), 11), ((2, "a"), 10)]
    assert list(index.scan((1, "b"), None)) == [((1, "b"), 11), ((2, "a"), 10)]


@pytest.mark.req("MEM-33")
@KINDS
def test_an_iterator_does_not_see_what_is_added_after_it_was_made(kind) -> None:
    index = _filled(kind, [[1, 3]])
    iterator = index.scan()
    index.add(_keys([2, 3]), 2)
    assert list(iterator) == [(1, 0), (3, 1)]


def test_order_costs_memory() -> None:
    small, large = (_filled(kind, [list(range(1000))]) for kind in (KeyIndexKind.HASH, KeyIndexKind.ORDERED))
    assert 0 < small.mem_size() < large.mem_size()


@pytest.mark.req("WRT-07")
@KINDS
def test_rows_that_are_not_covered_are_missed_until_the_refresh(kind) -> None:
    memtable = _memtable()
    index = MemTableIndex(memtable, ["id"], kind)
    memtable.add(_rows(1, 2))
    assert index.lookup(_keys_of(1), refresh=False).num_rows == 0
    assert memtable.to_table().num_rows == 2
    index.refresh()
    assert index.lookup(_keys_of(1), refresh=False).column("id").to_pylist() == [1]


@pytest.mark.req("WRT-42")
@KINDS
def test_a_late_entry_does_not_hide_newer_rows_that_are_covered(kind) -> None:
    memtable = _memtable()
    index = MemTableIndex(memtable, ["id"], kind)
    memtable.add(_rows(1, v="new"))
    index.refresh()
    memtable.add_replayed(_rows(1, 5, v="late"), 1, 10)
    found = index.lookup(_keys_of(5, 1, 7))
    assert found.select(["id", "v"]).to_pydict() == {"id": [5, 1], "v": ["late", "new"]}
    assert index.scan(2, 9).column("id").to_pylist() == [5]


def _keys_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})
