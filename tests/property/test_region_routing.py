"""Routing as a property: one region per key, whatever the rows are and however they arrive."""

from itertools import permutations

import mmh3
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from memwal_core.region.spec import RegionRouter, RegionSpec, bucket_spec, identity_spec, multi_bucket_spec
from memwal_core.region.spec.murmur3 import murmur3_multi
from memwal_core.region.spec.transforms import bucket_of_hash

IDS = {"id": 0, "name": 1, "value": 2}
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.int64())])
LONGS = st.none() | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ROWS = st.lists(st.tuples(LONGS, TEXTS), max_size=30)
SPECS = [
    RegionSpec(1, ()),
    bucket_spec(1, "id", IDS, 4),
    multi_bucket_spec(1, ["name", "id"], IDS, 7),
    identity_spec(1, SCHEMA.field("name"), IDS),
]


def table(rows: list[tuple]) -> pa.Table:
    columns = [[row[0] for row in rows], [row[1] for row in rows], list(range(len(rows)))]
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)], schema=SCHEMA)


def merged(base: dict, writes: list[pa.Table]) -> dict:
    """Upsert by key, the last write wins: a merge of one region's rows into the base table."""
    result = dict(base)
    for rows in writes:
        result.update(zip(rows["id"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return result


@pytest.mark.req("SPEC-25", "SPEC-26", "SPEC-29")
@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(TEXTS, LONGS, st.none() | st.binary(max_size=9)), min_size=1, max_size=20))
def test_hash_of_any_columns_equals_the_reference(rows):
    columns = [
        pa.array([row[position] for row in rows], kind)
        for position, kind in enumerate([pa.string(), pa.int64(), pa.binary()])
    ]
    expected = [
        mmh3.hash(
            (text or "").encode()
            + (b"" if number is None else number.to_bytes(8, "little", signed=True))
            + (raw or b"")
        )
        if (text, number, raw) != (None, None, None)
        else None
        for text, number, raw in rows
    ]
    assert murmur3_multi(columns).to_pylist() == expected


@pytest.mark.req("SPEC-27", "D-30")
@settings(derandomize=True, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 2**31 - 1))
@example(-(2**31), 1)
@example(-(2**31), 2**31 - 1)
def test_every_hash_lies_in_a_bucket(hashed, buckets):
    [found] = bucket_of_hash(pa.array([hashed], pa.int32()), buckets).to_pylist()
    assert found == abs(hashed) % buckets
    assert 0 <= found < buckets


@pytest.mark.req("SPEC-30", "SPEC-31")
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(field.field_id for field in spec.fields) or "none")
@settings(derandomize=True, deadline=None)
@given(rows=ROWS)
def test_every_row_lands_in_exactly_one_region_and_equal_keys_in_the_same(spec, rows):
    routed = RegionRouter(spec, IDS).route(table(rows))
    assert sorted(number for each in routed for number in each.rows["value"].to_pylist()) == list(range(len(rows)))
    assert all(each.rows["value"].to_pylist() == sorted(each.rows["value"].to_pylist()) for each in routed)
    assert len({each.value for each in routed}) == len(routed)
    region_of: dict = {}
    for each in routed:
        for number in each.rows["value"].to_pylist():
            assert region_of.setdefault(rows[number], each.value) == each.value


@pytest.mark.req("SPEC-29", "SPEC-38")
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(field.field_id for field in spec.fields) or "none")
@settings(derandomize=True, deadline=None, max_examples=30)
@given(rows=ROWS)
def test_written_key_looked_up_alone_is_never_pruned(spec, rows):
    router = RegionRouter(spec, IDS)
    for each in router.route(table(rows)):
        for number in each.rows["value"].to_pylist():
            assert router.values(table([rows[number]])) == [each.value]


@pytest.mark.req("SPEC-32")
def test_manual_regions_let_the_older_row_win_and_routing_prevents_it():
    older, newer = table([(1, "first")]), table([(1, "second")])
    newer = newer.set_column(2, "value", pa.array([99]))
    region_b_then_a = merged(merged({}, [newer]), [older])
    assert region_b_then_a == {1: 0}, "the documented wrong result of one key in two manual regions"

    router = RegionRouter(bucket_spec(1, "id", IDS, 16), IDS)
    regions: dict = {}
    for write in (older, newer):
        for value, rows in router.route(write):
            regions.setdefault(value, []).append(rows)
    assert len(regions) == 1
    [writes] = regions.values()
    assert merged({}, writes) == {1: 99}


@pytest.mark.req("SPEC-33")
@settings(derandomize=True, deadline=None, max_examples=50)
@given(rows=st.lists(st.tuples(st.integers(0, 6), st.just("x")), min_size=1, max_size=20))
def test_merge_order_between_routed_regions_does_not_matter(rows):
    written = table(rows)
    routed = RegionRouter(bucket_spec(1, "id", IDS, 3), IDS).route(written)
    results = []
    for order in permutations(routed):
        state: dict = {}
        for each in order:
            state = merged(state, [each.rows])
        results.append(state)
    assert all(state == merged({}, [written]) for state in results)
