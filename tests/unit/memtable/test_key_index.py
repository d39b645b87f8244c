"""One contract for both key index engines, and the index of a MemTable that is being written."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.memtable import (
    CoveredKeys,
    KeyIndexKind,
    MemTable,
    StoredEntry,
    key_capacity,
    make_key_index,
    memtable_schema,
    with_tombstones,
)

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


@pytest.mark.req("MEM-31")
@KINDS
def test_composite_keys_are_ordered_column_by_column(kind) -> None:
    index = make_key_index(kind)
    index.add(pa.table({"a": [2, 1, 1], "b": ["a", "b", "a"]}), 10)
    assert list(index.scan()) == [((1, "a"), 12), ((1, "b"), 11), ((2, "a"), 10)]
    for low in ((1, "b"), (1, "aa")):  # Stored, and not.
        assert list(index.scan(low, None)) == [((1, "b"), 11), ((2, "a"), 10)]


@pytest.mark.req("MEM-33")
@KINDS
def test_an_iterator_does_not_see_what_is_added_after_it_was_made(kind) -> None:
    index = _filled(kind, [[1, 3]])
    iterator = index.scan()
    index.add(_keys([2, 3]), 2)
    assert list(iterator) == [(1, 0), (3, 1)]


@KINDS
def test_a_refresh_looks_only_at_what_is_new(kind) -> None:
    looked_at = []

    class Counted(MemTable):
        def fragments_from(self, first: int):
            found = super().fragments_from(first)
            looked_at.append(len(found))
            return found

    memtable = Counted(1, SCHEMA, 0, datetime(2026, 1, 1, tzinfo=UTC))
    index = CoveredKeys(memtable.schema, ["id"], kind)
    for key in range(20):
        memtable.add(_rows(key))
        index.cover(memtable)
    assert looked_at == [1] + [2] * 19
    assert index.lookup(_keys_of(*range(20))).num_rows == 20


def test_order_costs_memory() -> None:
    small, large = (_filled(kind, [list(range(1000))]) for kind in (KeyIndexKind.HASH, KeyIndexKind.ORDERED))
    assert 0 < small.mem_size() < large.mem_size()


@pytest.mark.req("WRT-07")
@KINDS
def test_rows_that_are_not_covered_are_missed_until_the_refresh(kind) -> None:
    memtable = _memtable()
    index = CoveredKeys(memtable.schema, ["id"], kind)
    memtable.add(_rows(1, 2))
    assert index.lookup(_keys_of(1)).num_rows == 0
    assert index.scan().num_rows == 0
    assert memtable.to_table().num_rows == 2
    index.cover(memtable)
    assert index.lookup(_keys_of(1)).column("id").to_pylist() == [1]
    assert index.scan().column("id").to_pylist() == [1, 2]
    memtable.add(_rows(3))
    assert index.scan().column("id").to_pylist() == [1, 2]
    index.cover(memtable)
    assert index.scan().column("id").to_pylist() == [1, 2, 3]


@pytest.mark.req("WRT-42")
@KINDS
def test_a_late_entry_does_not_hide_newer_rows_that_are_covered(kind) -> None:
    memtable = _memtable()
    index = CoveredKeys(memtable.schema, ["id"], kind)
    memtable.add(_rows(1, v="new"))
    index.cover(memtable)
    memtable.add_replayed(_rows(1, 5, v="late"), StoredEntry(1, 2, 10))
    index.cover(memtable)
    found = index.lookup(_keys_of(5, 1, 7))
    assert found.select(["id", "v"]).to_pydict() == {"id": [5, 1], "v": ["late", "new"]}
    assert index.scan(2, 9).column("id").to_pylist() == [5]


def _keys_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def _route_key(key) -> bytes:
    """Return bytes that compare as the key does, from which it can be read back."""
    if isinstance(key, tuple):
        return b"".join(_route_key(part) for part in key)
    if isinstance(key, int):
        return (key + 2**63).to_bytes(8, "big")
    raw = key if isinstance(key, bytes) else key.encode()
    return raw.replace(b"\0", b"\0\xff") + b"\0\0"


INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
KEY_COLUMNS = {
    "integer": ([pa.int64()], st.tuples(INTEGERS)),
    "text": ([pa.string()], st.tuples(TEXTS)),
    "binary": ([pa.binary()], st.tuples(st.binary(max_size=4))),
    "composite": ([pa.string(), pa.int64()], st.tuples(TEXTS, INTEGERS)),
}


@pytest.mark.req("MEM-05", "MEM-31", "MEM-04")
@KINDS
@pytest.mark.parametrize("types", KEY_COLUMNS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_keys_come_back_as_they_were_in_the_order_of_their_bytes(kind: KeyIndexKind, types: str, data) -> None:
    column_types, strategy = KEY_COLUMNS[types]
    keys = data.draw(st.lists(strategy, max_size=30))
    columns = [pa.array([key[at] for key in keys], each) for at, each in enumerate(column_types)]
    index = make_key_index(kind)
    index.add(pa.table(columns, names=[f"k{at}" for at in range(len(columns))]), 0)
    stored = [key if len(column_types) > 1 else key[0] for key in keys]
    assert [key for key, _ in index.scan()] == sorted(set(stored), key=_route_key)


@pytest.mark.req("MEM-11")
@pytest.mark.parametrize("kind", KeyIndexKind)
@pytest.mark.parametrize(("max_bytes", "keys"), [(1_000, 1_000 // 25), (10_000, 10_000 // 25), (1_000_000, 5_000)])
def test_one_rule_sizes_the_index_of_every_engine_by_the_size_of_a_memtable(
    kind: KeyIndexKind, max_bytes: int, keys: int
) -> None:
    memtable = MemTable(1, SCHEMA, 0, datetime.now(UTC))
    memtable.add(_rows(1, 2, 3, 4), size_bytes=100)
    capacity = key_capacity(max_bytes, 5_000)
    assert capacity(memtable.fragments) == keys
    covered = CoveredKeys(SCHEMA, ["id"], kind, capacity=capacity)
    covered.cover(memtable)
    assert covered.lookup(_rows(3, 9)).column("id").to_pylist() == [3]
    alone = make_key_index(kind)
    alone.add(_rows(1, 2, 3, 4).select(["id"]), 0)
    assert covered.mem_size - alone.mem_size() == pytest.approx(2 * keys, rel=0.3, abs=64)


@pytest.mark.req("MEM-11", "WRT-49")
def test_a_batch_larger_than_the_limit_still_fits_the_filter() -> None:
    memtable = MemTable(1, SCHEMA, 0, datetime.now(UTC))
    memtable.add(_rows(*range(100)), size_bytes=10_000)
    assert key_capacity(1, 10)(memtable.fragments) == 100


def test_limits_that_mean_never_reserve_no_memory_for_as_many_keys() -> None:
    memtable = MemTable(1, SCHEMA, 0, datetime.now(UTC))
    memtable.add(_rows(1, 2))
    covered = CoveredKeys(SCHEMA, ["id"], capacity=key_capacity(2**60, 2**40))
    covered.cover(memtable)
    assert covered.mem_size < 16 * 1024**2


@KINDS
def test_a_lookup_reads_only_the_fragments_that_have_its_rows(
    kind: KeyIndexKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lookup put all fragments together: 24 ms for one key after 4,000 puts."""
    memtable = _memtable()
    index = CoveredKeys(SCHEMA, ["id"], kind)
    for number in range(300):
        memtable.add(_rows(number, 1000 + number, v=str(number)))
        memtable.add(_rows())  # As a fence that was replayed.
    index.cover(memtable)
    joined: list[int] = []
    concat_tables = pa.concat_tables

    def counted(tables: Iterable[pa.Table]) -> pa.Table:
        parts = list(tables)
        joined.append(len(parts))
        return concat_tables(parts)

    monkeypatch.setattr(pa, "concat_tables", counted)
    found = index.lookup(pa.table({"id": [1299, 7, 299, 5000]}))
    assert found.column("v").to_pylist() == ["299", "7", "299"]
    assert index.scan(1003, 1005).column("v").to_pylist() == ["3", "4", "5"]
    assert index.lookup(pa.table({"id": [5000]})).num_rows == 0
    assert joined == [2, 3]
