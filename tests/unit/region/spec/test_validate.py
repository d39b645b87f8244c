from dataclasses import replace

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec import (
    RegionField,
    RegionSpec,
    bucket_spec,
    identity_spec,
    multi_bucket_spec,
    next_spec_id,
    validate_new_spec,
    validate_spec,
)
from memwal_core.region.spec.validate import LANCE_HASH, UNKNOWN_SOURCE

SCHEMA = {
    0: pa.field("id", pa.int64()),
    1: pa.field("name", pa.string()),
    2: pa.field("at", pa.timestamp("us", "UTC")),
    3: pa.field("price", pa.float64()),
    4: pa.field("small", pa.int32()),
}
IDS = {field.name: field_id for field_id, field in SCHEMA.items()}
KEY = {0, 1}
GOOD = RegionField("f", (0,), "bucket", parameters={"num_buckets": "4", "hash": "murmur3_x86_32"})


def refused(field: RegionField) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as refusal:
        validate_spec(RegionSpec(1, (field,)), SCHEMA, KEY)
    return refusal.value


@pytest.mark.req("SPEC-01")
@pytest.mark.parametrize("spec_id", [0, -1, 2**32])
def test_spec_id_out_of_range_is_refused(spec_id):
    with pytest.raises(InvalidRequestError) as refusal:
        validate_spec(RegionSpec(spec_id, (GOOD,)), SCHEMA, KEY)
    assert refusal.value.facts["spec_id"] == spec_id


@pytest.mark.req("SPEC-01")
def test_next_id_is_above_every_id_ever_used():
    assert next_spec_id([]) == 1
    assert next_spec_id([1, 3, 0]) == 4


@pytest.mark.req("SPEC-01", "SPEC-36")
def test_second_spec_needs_an_id_of_its_own():
    first = bucket_spec(1, "id", IDS, 4)
    assert validate_new_spec(bucket_spec(2, "id", IDS, 8), [first], SCHEMA, KEY) == ()
    with pytest.raises(InvalidRequestError, match="taken"):
        validate_new_spec(bucket_spec(1, "id", IDS, 8), [first], SCHEMA, KEY)


@pytest.mark.req("SPEC-02", "SPEC-31")
@pytest.mark.parametrize(
    "spec",
    [
        RegionSpec(1, ()),
        bucket_spec(1, "id", IDS, 4),
        multi_bucket_spec(1, ["name", "id"], IDS, 4),
        identity_spec(1, SCHEMA[1], IDS),
        RegionSpec(1, (GOOD, replace(GOOD, field_id="g"))),
        RegionSpec(1, (RegionField("f", (0,), expression="col0 / 1000"),)),
        RegionSpec(1, (RegionField("f", (1,), expression="left(lower(col0), 2)", result_type="utf8"),)),
    ],
)
def test_spec_over_key_columns_passes_without_warning(spec):
    assert validate_spec(spec, SCHEMA, KEY) == ()


@pytest.mark.req("SPEC-04")
def test_duplicate_and_empty_field_ids_are_refused():
    with pytest.raises(InvalidRequestError, match="unique"):
        validate_spec(RegionSpec(1, (GOOD, GOOD)), SCHEMA, KEY)
    assert "unique" in str(refused(replace(GOOD, field_id="")))


@pytest.mark.req("SPEC-06")
@pytest.mark.parametrize("field", [replace(GOOD, transform=None), replace(GOOD, expression="col0")])
def test_both_or_neither_of_transform_and_expression_is_refused(field):
    assert "either" in str(refused(field))


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize("value", ["0", "-1", "1.5", "", " 4", "1_0", "٤", str(2**31), "9" * 5000])
def test_bucket_count_out_of_range_is_refused(value):
    assert refused(replace(GOOD, parameters={**GOOD.parameters, "num_buckets": value})).facts["value"] == value


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize("value", ["0", "-3", "x", str(2**63)])
def test_width_out_of_range_is_refused(value):
    field = RegionField("f", (0,), "truncate", result_type="int64", parameters={"width": value})
    assert refused(field).facts["parameter"] == "width"


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize("transform", ["bucket", "multi_bucket", "truncate"])
def test_missing_parameter_is_refused(transform):
    assert "missing" in str(refused(RegionField("f", (0,), transform, result_type="int32")))


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize("transform", ["", "week", "Bucket"])
def test_unknown_transform_is_refused(transform):
    assert refused(replace(GOOD, transform=transform)).facts["transform"] == transform


@pytest.mark.req("SPEC-28")
@pytest.mark.parametrize(
    "field", [replace(GOOD, source_ids=(0, 1)), replace(GOOD, source_ids=()), replace(GOOD, transform="unsharded")]
)
def test_number_of_sources_that_the_transform_does_not_take_is_refused(field):
    assert "number of source" in str(refused(field))


@pytest.mark.req("SPEC-28")
def test_unknown_hash_is_refused():
    assert refused(replace(GOOD, parameters={"num_buckets": "4", "hash": "xxh3"})).facts["hash"] == "xxh3"


@pytest.mark.req("SPEC-14", "SPEC-07")
@pytest.mark.parametrize(
    "field",
    [
        replace(GOOD, result_type="int64"),
        replace(GOOD, result_type="nope"),
        RegionField("f", (0,), "identity", result_type="int32"),
        RegionField("f", (3,), "identity", result_type="double"),
        RegionField("f", (2,), "year", result_type="utf8"),
        RegionField("f", (0,), "year"),
        RegionField("f", (1,), expression="left(col0, 1)"),
        RegionField("f", (0,), expression="col0 + 1", result_type="utf8"),
        RegionField("f", (0,), expression="col0 / 2.0"),
    ],
)
def test_result_type_that_disagrees_is_refused(field):
    refused(field)


@pytest.mark.req("SPEC-09", "SPEC-10")
@pytest.mark.parametrize(
    ("expression", "result_type"),
    [("now()", "date32"), ("current_date", "date32"), ("random()", "int64"), ("uuid()", "utf8")],
)
def test_impure_expression_is_refused(expression, result_type):
    refused(RegionField("f", (0,), expression=expression, result_type=result_type))


@pytest.mark.req("SPEC-31")
@pytest.mark.parametrize("field", [identity_spec(1, SCHEMA[4], IDS).fields[0], replace(GOOD, source_ids=(99,))])
def test_source_outside_the_primary_key_is_refused(field):
    """It was only warned of, and which of two versions of a row was the newer one was unknown."""
    refusal = refused(field)
    assert refusal.facts["columns"] in (["small"], [99])
    assert refusal.facts["key"] == ["id", "name"]
    assert "make them part of the key" in refusal.remedy


@pytest.mark.req("SPEC-12")
def test_sources_of_regions_that_exist_may_be_any_and_are_flagged_outside_the_schema():
    assert validate_spec(identity_spec(1, SCHEMA[4], IDS), SCHEMA, None) == ()
    [warning] = validate_spec(RegionSpec(1, (replace(GOOD, source_ids=(99,)),)), SCHEMA, None)
    assert warning.code == UNKNOWN_SOURCE


@pytest.mark.req("SPEC-11")
def test_pylance_bucket_is_flagged():
    warnings = validate_spec(RegionSpec(1, (replace(GOOD, parameters={"num_buckets": "4"}),)), SCHEMA, KEY)
    assert [warning.code for warning in warnings] == [LANCE_HASH]


def test_constructors_name_and_bind_their_fields():
    [field] = bucket_spec(1, "id", IDS, 4).fields
    assert (field.field_id, field.source_ids, field.transform) == ("id_bucket", (0,), "bucket")
    assert field.parameters == {"num_buckets": "4", "hash": "murmur3_x86_32"}
    [field] = multi_bucket_spec(1, ["name", "id"], IDS, 4).fields
    assert (field.field_id, field.source_ids) == ("name_id_bucket", (1, 0))
    [field] = identity_spec(1, pa.field("name", pa.dictionary(pa.int32(), pa.string())), IDS).fields
    assert (field.field_id, field.result_type) == ("name", "utf8")
    with pytest.raises(InvalidRequestError, match="not in the table's schema"):
        bucket_spec(1, "nope", IDS, 4)
    with pytest.raises(InvalidRequestError):
        identity_spec(1, SCHEMA[3], IDS)


@pytest.mark.req("SPEC-09")
@pytest.mark.parametrize(
    ("expression", "result_type"), [("cast(random() * 1e9 as bigint)", "int64"), ("uuid()", "utf8")]
)
def test_impure_function_that_no_list_names_is_refused_by_its_values(monkeypatch, expression, result_type):
    monkeypatch.setattr("memwal_core.region.spec.expression_text.FORBIDDEN_WORDS", frozenset())
    assert "different values" in str(refused(RegionField("f", (0,), expression=expression, result_type=result_type)))
