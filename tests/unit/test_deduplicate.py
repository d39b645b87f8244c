"""The rule of the newest row, against dictionaries that replay every write and against stable sorts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.deduplicate import (
    NewestRows,
    deduplicate,
    key_order,
    last_row_per_key,
    rows_without_key,
    superseded_rows,
)

Write = tuple[int, bool]
"""A key, and whether it is deleted."""

KEYS: dict[str, pa.Schema] = {
    "an integer": pa.schema([("id", pa.int64())]),
    "text": pa.schema([("id", pa.string())]),
    "an integer and bytes": pa.schema([("a", pa.int8()), ("b", pa.binary())]),
}
SOURCES = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), min_size=1, max_size=6)
NUMBERS = st.lists(st.integers(0, 20), max_size=200)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@dataclass(frozen=True)
class Source:
    keys: pa.Table
    deleted: npt.NDArray[np.bool_]


def _key(number: int, schema: pa.Schema) -> tuple[object, ...]:
    if len(schema) > 1:
        return number % 3, str(number).encode()
    return (number if pa.types.is_integer(schema.field(0).type) else f"key {number}",)


def _source(writes: Sequence[Write], schema: pa.Schema) -> Source:
    rows = [_key(number, schema) for number, _ in writes]
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    return Source(pa.table(columns, schema=schema), np.array([deletes for _, deletes in writes], dtype=bool))


def _found(sources: Sequence[Sequence[Write]], kind: str) -> NewestRows:
    schema = KEYS[kind]
    return deduplicate([_source(writes, schema) for writes in sources], schema.names)


def _replayed(sources: Sequence[Sequence[Write]]) -> dict[int, tuple[int, int, bool]]:
    """Return for each key the source and the row there that counts, and whether it deletes."""
    return {
        number: (place, row, deletes)
        for place, writes in enumerate(sources)
        for row, (number, deletes) in enumerate(writes)
    }


def _placed(newest: NewestRows, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    return [(place, row) for place, own in enumerate(newest.by_source(rows)) for row in own.tolist()]


@st.composite
def _integers(draw: st.DrawFn, kind: pa.DataType) -> list[int]:
    """Draw integers all over their type, or many of a narrow range of it, so that keys come twice."""
    limits = np.iinfo(kind.to_pandas_dtype())
    span = draw(st.sampled_from([3, 2**16 - 1, 2**16, 2**32, 2**64]))
    low = draw(st.integers(limits.min, max(limits.min, limits.max - span)))
    return draw(st.lists(st.integers(low, min(limits.max, low + span)), max_size=300))


def _expected(keys: list[object]) -> list[int]:
    return sorted({key: row for row, key in enumerate(keys)}.values())


@pytest.mark.req("MRG-07", "RD-02", "RD-04")
@pytest.mark.parametrize("kind", KEYS)
@settings(derandomize=True, deadline=None)
@given(sources=SOURCES)
def test_rows_that_survive_are_those_of_a_dictionary(kind: str, sources: list[list[Write]]) -> None:
    newest, expected = _found(sources, kind), _replayed(sources)

    assert _placed(newest, newest.live) == sorted((s, r) for s, r, deletes in expected.values() if not deletes)
    assert _placed(newest, newest.tombstones) == sorted((s, r) for s, r, deletes in expected.values() if deletes)
    assert _placed(newest, newest.last) == sorted((s, r) for s, r, _ in expected.values())


@pytest.mark.req("MRG-07", "RD-04")
@pytest.mark.parametrize("kind", KEYS)
@settings(derandomize=True, deadline=None)
@given(sources=SOURCES)
def test_keys_of_survivors_and_of_tombstones_are_each_named_once(kind: str, sources: list[list[Write]]) -> None:
    newest, expected, schema = _found(sources, kind), _replayed(sources), KEYS[kind]

    def named(rows: npt.NDArray[np.int64]) -> list[tuple[object, ...]]:
        keys = newest.keys_of(rows)
        assert keys.schema == schema
        return sorted(zip(*(column.to_pylist() for column in keys.columns), strict=True))

    assert named(newest.live) == sorted(
        _key(number, schema) for number, (*_, deletes) in expected.items() if not deletes
    )
    assert named(newest.tombstones) == sorted(
        _key(number, schema) for number, (*_, deletes) in expected.items() if deletes
    )
    assert newest.keys.num_rows == sum(map(len, sources))


@settings(derandomize=True, deadline=None)
@given(sources=SOURCES, data=st.data())
def test_any_ascending_rows_go_to_the_sources_that_hold_them(sources: list[list[Write]], data: st.DataObject) -> None:
    every = [(place, row) for place, writes in enumerate(sources) for row in range(len(writes))]
    chosen = sorted(data.draw(st.sets(st.integers(0, len(every) - 1)))) if every else []
    newest = _found(sources, "text")

    parts = list(newest.by_source(np.array(chosen, dtype=np.int64)))

    assert len(parts) == len(sources)
    assert [(place, row) for place, own in enumerate(parts) for row in own.tolist()] == [every[row] for row in chosen]


def test_row_that_is_deleted_and_written_again_survives_once() -> None:
    newest = _found([[(1, False), (2, False)], [(1, True), (2, True)], [(1, False)]], "an integer")

    assert _placed(newest, newest.live) == [(2, 0)]
    assert _placed(newest, newest.tombstones) == [(1, 1)]


def test_sources_without_rows_have_no_survivors() -> None:
    newest = _found([[], []], "an integer")

    assert [own.tolist() for own in newest.by_source(newest.live)] == [[], []]
    assert newest.keys_of(newest.last).num_rows == 0


@pytest.mark.req("MRG-07", "RD-04")
@settings(derandomize=True, deadline=None)
@given(NUMBERS)
def test_integer_keys_keep_their_last_row(keys: list[int]) -> None:
    table = pa.table({"id": pa.array(keys, pa.int32())})
    assert last_row_per_key(table, ["id"]).tolist() == _expected(list(keys))


@pytest.mark.req("MRG-07")
@settings(derandomize=True, deadline=None)
@given(NUMBERS)
def test_composite_keys_keep_their_last_row(keys: list[int]) -> None:
    pairs = [(key % 3, f"k{key % 5}") for key in keys]
    table = pa.table(
        {"a": pa.array([a for a, _ in pairs], pa.int8()), "b": pa.array([b for _, b in pairs], pa.string())}
    )
    assert last_row_per_key(table, ["a", "b"]).tolist() == _expected(list(pairs))


@pytest.mark.req("MRG-07", "RD-04")
@pytest.mark.parametrize("kind", INTEGERS, ids=str)
@settings(derandomize=True, deadline=None)
@given(data=st.data())
def test_order_of_integers_is_that_of_a_stable_sort(kind: pa.DataType, data: st.DataObject) -> None:
    values = np.array(data.draw(_integers(kind)), kind.to_pandas_dtype())
    order = key_order(pa.table({"id": pa.array(values, kind)}), ["id"])
    assert order is not None
    assert order.dtype == np.int64
    assert order.tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 2, 70_000])
def test_order_of_many_integers_from_end_to_end_is_that_of_a_stable_sort(kind: pa.DataType, rows: int) -> None:
    limits = np.iinfo(kind.to_pandas_dtype())
    values = np.random.default_rng(rows).integers(limits.min, limits.max, rows, kind.to_pandas_dtype(), endpoint=True)
    values[:1], values[-1:] = limits.max, limits.min
    order = key_order(pa.table({"id": pa.array(values, kind)}), ["id"])
    assert order is not None
    assert np.array_equal(order, np.argsort(values, kind="stable"))


def test_ascending_integers_take_the_short_way_and_all_survive() -> None:
    table = pa.table({"id": pa.array(np.arange(1000))})
    assert last_row_per_key(table, ["id"]).tolist() == list(range(1000))


@settings(derandomize=True, deadline=None)
@given(NUMBERS)
def test_superseded_and_surviving_rows_are_complements(keys: list[int]) -> None:
    table = pa.table({"id": pa.array([str(key) for key in keys], pa.string())})
    both = np.concatenate([last_row_per_key(table, ["id"]), superseded_rows(table, ["id"])])
    assert sorted(both.tolist()) == list(range(len(keys)))


@settings(derandomize=True, deadline=None)
@given(NUMBERS, NUMBERS)
def test_rows_without_key_drops_exactly_the_shared_keys_and_keeps_order(left: list[int], right: list[int]) -> None:
    rows = pa.table({"id": pa.array(left, pa.int64()), "v": pa.array(range(len(left)), pa.int64())})
    others = pa.table({"id": pa.array(right, pa.int64())})
    kept = rows_without_key(rows, others, ["id"])
    assert kept.column("v").to_pylist() == [row for row, key in enumerate(left) if key not in set(right)]


@pytest.mark.parametrize("name", ["__row", "__row_max", "__position", "key 0"])
def test_key_columns_may_have_any_name(name: str) -> None:
    table = pa.table({name: ["a", "b", "a"]})
    assert last_row_per_key(table, [name]).tolist() == [1, 2]
    assert rows_without_key(table, pa.table({name: ["b"]}), [name]).column(name).to_pylist() == ["a", "a"]
