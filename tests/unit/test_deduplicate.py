import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.deduplicate import key_order, last_row_per_key, rows_without_key, superseded_rows

KEYS = st.lists(st.integers(0, 20), max_size=200)
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


@st.composite
def _integers(draw: st.DrawFn, kind: pa.DataType) -> list[int]:
    """Draw integers all over their type, or many of a narrow range of it, so that keys come twice."""
    limits = np.iinfo(kind.to_pandas_dtype())
    span = draw(st.sampled_from([3, 2**16 - 1, 2**16, 2**32, 2**64]))
    low = draw(st.integers(limits.min, max(limits.min, limits.max - span)))
    return draw(st.lists(st.integers(low, min(limits.max, low + span)), max_size=300))


def _expected(keys: list[object]) -> list[int]:
    return sorted({key: row for row, key in enumerate(keys)}.values())


@pytest.mark.req("MRG-07", "RD-04")
@settings(derandomize=True, deadline=None)
@given(KEYS)
def test_integer_keys_keep_their_last_row(keys: list[int]) -> None:
    table = pa.table({"id": pa.array(keys, pa.int32())})
    assert last_row_per_key(table, ["id"]).tolist() == _expected(list(keys))


@pytest.mark.req("MRG-07")
@settings(derandomize=True, deadline=None)
@given(KEYS)
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
@given(KEYS)
def test_superseded_and_surviving_rows_are_complements(keys: list[int]) -> None:
    table = pa.table({"id": pa.array([str(key) for key in keys], pa.string())})
    both = np.concatenate([last_row_per_key(table, ["id"]), superseded_rows(table, ["id"])])
    assert sorted(both.tolist()) == list(range(len(keys)))


@settings(derandomize=True, deadline=None)
@given(KEYS, KEYS)
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
