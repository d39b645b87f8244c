"""Looking up many keys at once, whatever their type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.base_table.keys.search import KeySearch, positions

INTEGERS = {
    pa.int8(): st.integers(-128, 127),
    pa.uint8(): st.integers(0, 255),
    pa.int64(): st.one_of(st.integers(-5, 5), st.integers(-(2**63), 2**63 - 1)),
    pa.uint64(): st.one_of(st.integers(0, 9), st.integers(0, 2**64 - 1)),
}


def table(values: list[object], kind: pa.DataType) -> pa.Table:
    return pa.table({"k": pa.array(values, kind)})


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_are_found_like_members_of_a_set(kind):
    @given(st.sets(INTEGERS[kind]), st.lists(INTEGERS[kind]))
    @settings(derandomize=True, deadline=None)
    def check(keys, rows):
        found = KeySearch(table(sorted(keys), kind), ["k"]).found(table(rows, kind))
        assert found.tolist() == [value in keys for value in rows]

    check()


def test_keys_far_apart_are_found_without_a_table_of_all_values():
    keys = np.arange(0, 2**62, 2**50)
    search = KeySearch(pa.table({"k": keys}), ["k"])
    assert search.found(pa.table({"k": [0, 1, 2**50, 2**50 + 1, -(2**63)]})).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert len(search) == len(keys)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_many_values_that_share_a_flag_with_a_key_are_told_from_it(kind):
    rng = np.random.default_rng(3)
    limits = np.iinfo(kind)
    values = np.unique(rng.integers(limits.min, limits.max, 40_000, kind, endpoint=True))
    keys, rows = values[::4], rng.permutation(values)
    found = KeySearch(pa.table({"k": keys}), ["k"]).found(pa.table({"k": rows}))
    assert np.array_equal(found, np.isin(rows, keys))


@given(st.sets(st.text(max_size=3)), st.lists(st.text(max_size=3)))
@settings(derandomize=True, deadline=None)
def test_text_is_found_like_members_of_a_set(keys, rows):
    found = KeySearch(table(sorted(keys), pa.string()), ["k"]).found(table(rows, pa.string()))
    assert found.tolist() == [value in keys for value in rows]


pairs = st.tuples(st.integers(0, 3), st.sampled_from("abc"))


def columns(rows: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"n": pa.array([n for n, _ in rows], pa.int64()), "s": pa.array([s for _, s in rows], pa.string())})


@given(st.sets(pairs), st.lists(pairs))
@settings(derandomize=True, deadline=None)
def test_composite_keys_are_found_as_a_whole(keys, rows):
    found = KeySearch(columns(sorted(keys)), ["n", "s"]).found(columns(rows))
    assert found.tolist() == [row in keys for row in rows]


@given(st.sets(pairs), st.lists(pairs))
@settings(derandomize=True, deadline=None)
def test_positions_name_the_row_with_the_key(keys, rows):
    among = sorted(keys)
    places = positions(columns(rows), columns(among), ["n", "s"]).to_pylist()
    assert places == [among.index(row) if row in keys else None for row in rows]


@pytest.mark.parametrize("names", [("__row", "__position"), ("key 1", "key 0")])
def test_key_columns_may_have_any_name(names):
    rows, among = (pa.table(dict(zip(names, values, strict=True))) for values in ((["a", "b"], [1, 1]), (["b"], [1])))
    assert KeySearch(among, names).found(rows).tolist() == [False, True]
    assert positions(rows, among, names).to_pylist() == [None, 0]
