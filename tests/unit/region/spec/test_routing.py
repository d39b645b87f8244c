import datetime
import pickle

import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.region.spec import (
    RegionField,
    RegionRouter,
    RegionSpec,
    bucket_spec,
    decode_region_value,
    encode_region_value,
    identity_spec,
    multi_bucket_spec,
)

IDS = {"id": 10, "tenant": 11, "value": 12}
TENANT = identity_spec(1, pa.field("tenant", pa.string()), IDS)
ROWS = pa.table({"id": [5, 123, 34, 5, None], "tenant": ["a", None, "b", "a", None], "value": [0, 1, 2, 3, 4]})


@pytest.mark.req("SPEC-30", "SPEC-34")
def test_rows_go_to_their_region_in_order_and_null_has_its_own():
    routed = RegionRouter(TENANT, IDS).route(ROWS)
    assert [(each.value, each.rows["value"].to_pylist()) for each in routed] == [
        (("a",), [0, 3]),
        ((None,), [1, 4]),
        (("b",), [2]),
    ]
    assert all(each.rows.schema == ROWS.schema for each in routed)


@pytest.mark.req("SPEC-34")
def test_null_key_lands_in_one_region_of_a_bucket_spec():
    routed = dict(RegionRouter(bucket_spec(1, "id", IDS, 10), IDS).route(ROWS))
    assert {value: rows["id"].to_pylist() for value, rows in routed.items()} == {
        (3,): [5, 5],
        (4,): [123],
        (9,): [34],
        (None,): [None],
    }


@pytest.mark.req("SPEC-02", "SPEC-30")
def test_two_fields_combine_to_one_region_value():
    spec = RegionSpec(1, (TENANT.fields[0], bucket_spec(1, "id", IDS, 10).fields[0]))
    routed = RegionRouter(spec, IDS).route(ROWS)
    assert [each.value for each in routed] == [("a", 3), (None, 4), ("b", 9), (None, None)]


@pytest.mark.req("SPEC-02")
def test_spec_without_fields_has_one_region():
    [only] = RegionRouter(RegionSpec(1, ()), IDS).route(ROWS)
    assert only.value == ()
    assert only.rows.equals(ROWS)


@pytest.mark.req("SPEC-30")
def test_single_region_is_returned_without_a_copy():
    rows = ROWS.filter(pa.compute.equal(ROWS["tenant"], "a"))
    [only] = RegionRouter(TENANT, IDS).route(rows)
    assert only.rows is rows


def test_no_rows_give_no_regions():
    assert RegionRouter(TENANT, IDS).route(ROWS.slice(0, 0)) == []
    assert RegionRouter(TENANT, IDS).values(ROWS.slice(0, 0)) == []


@pytest.mark.req("SPEC-30")
def test_record_batch_routes_like_its_table():
    batch = ROWS.combine_chunks().to_batches()[0]
    router = RegionRouter(TENANT, IDS)
    assert [(each.value, each.rows.to_pydict()) for each in router.route(batch)] == [
        (each.value, each.rows.to_pydict()) for each in router.route(ROWS)
    ]


@pytest.mark.req("SPEC-12")
def test_column_missing_from_the_rows_is_refused_but_dropped_from_the_schema_is_null():
    without = ROWS.drop_columns(["tenant"])
    with pytest.raises(InvalidRequestError) as refusal:
        RegionRouter(TENANT, IDS).route(without)
    assert refusal.value.facts["column"] == "tenant"
    [only] = RegionRouter(TENANT, {"id": 10, "value": 12}).route(without)
    assert only.value == (None,)


@pytest.mark.req("SPEC-38")
def test_values_of_keys_are_the_regions_that_they_route_to():
    router = RegionRouter(multi_bucket_spec(1, ["id", "tenant"], IDS, 10), IDS)
    assert router.values(ROWS.select(["tenant", "id"])) == [each.value for each in router.route(ROWS)]


@pytest.mark.req("SPEC-36")
def test_each_spec_routes_by_its_own_fields():
    old, new = RegionRouter(bucket_spec(1, "id", IDS, 10), IDS), RegionRouter(bucket_spec(2, "id", IDS, 3), IDS)
    key = ROWS.slice(0, 1)
    assert (old.values(key), new.values(key)) == ([(3,)], [(1740791543 % 3,)])


def test_more_regions_than_sixteen_bits_keep_every_row():
    rows = pa.table({"id": pa.array(range(70_000)), "tenant": pa.nulls(70_000, pa.string())})
    spec = RegionSpec(1, (RegionField("id", (10,), "identity", result_type="int64"),))
    routed = RegionRouter(spec, IDS).route(rows)
    assert len(routed) == 70_000
    assert all(each.rows.num_rows == 1 and each.rows["id"][0].as_py() == each.value[0] for each in routed[::7000])


def test_pickled_router_routes_alike():
    router = pickle.loads(pickle.dumps(RegionRouter(bucket_spec(1, "id", IDS, 10), IDS)))
    assert router.values(ROWS) == [(3,), (4,), (9,), (None,)]


@pytest.mark.req("SPEC-34", "FMT-42")
def test_region_value_survives_its_manifest_form():
    spec = RegionSpec(
        1,
        tuple(
            RegionField(name, (0,), "identity", result_type=name)
            for name in ("int16", "utf8", "boolean", "binary", "date32", "uint8")
        ),
    )
    value = (-300, "", False, b"\0", datetime.date(1969, 7, 20), None)
    stored = encode_region_value(spec, value)
    assert "uint8" not in stored
    assert stored["utf8"] == b""
    assert decode_region_value(spec, stored) == value


@pytest.mark.parametrize(
    ("result_type", "value"), [("int8", 128), ("uint8", -1), ("int32", "x"), ("utf8", 5), ("date32", "x")]
)
def test_region_value_that_does_not_fit_is_refused(result_type, value):
    spec = RegionSpec(1, (RegionField("f", (0,), "identity", result_type=result_type),))
    with pytest.raises(InvalidRequestError):
        encode_region_value(spec, (value,))
    with pytest.raises(InvalidRequestError):
        encode_region_value(spec, ())


@pytest.mark.parametrize(
    ("result_type", "stored"), [("int32", b"\0"), ("utf8", b"\xff"), ("boolean", b"\2"), ("date64", b"")]
)
def test_stored_value_that_is_no_value_of_its_type_is_corruption(result_type, stored):
    spec = RegionSpec(1, (RegionField("f", (0,), "identity", result_type=result_type),))
    with pytest.raises(CorruptionError):
        decode_region_value(spec, {"f": stored})


def test_stored_value_of_a_strange_field_is_corruption():
    with pytest.raises(CorruptionError) as corruption:
        decode_region_value(TENANT, {"tenant": b"a", "other": b""})
    assert corruption.value.facts["field_ids"] == ["other"]
