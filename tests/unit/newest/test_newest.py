import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.newest import last_row_per_key, rows_without_key, superseded_rows

KEYS = st.lists(st.integers(0, 20), max_size=200)


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
