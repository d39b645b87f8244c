"""Stored vectors: these values decide in which region a key lives and may never change."""

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_spec.result_types import RESULT_TYPES
from memwal_core.region.spec import (
    RegionField,
    RegionSpec,
    decode_region_value,
    encode_region_value,
    evaluate_field,
    spec_from_message,
    spec_to_message,
)
from memwal_core.region.spec.expression import evaluate_expression
from memwal_core.region.spec.murmur3 import murmur3_multi
from memwal_core.region.spec.transforms import find_transform

HERE = Path(__file__).parent
TYPES = {**RESULT_TYPES, "timestamp_us": pa.timestamp("us", "UTC")}
CASES = json.loads((HERE / "transforms.json").read_text())
PYLANCE_BUCKET_SPEC = bytes.fromhex(
    "0801122d0a066275636b65741201001a066275636b65742a05696e74333232110a0b6e756d5f6275636b65747312023130"
)
"""As pylance 14.0.2 writes it: bucket of field 0 into 10."""


def column(type_name: str, values: list) -> pa.Array:
    if type_name == "binary":
        values = [None if value is None else bytes.fromhex(value) for value in values]
    if type_name == "date32":
        return pa.array(values, pa.int32()).cast(pa.date32())
    return pa.array(values, TYPES[type_name])


def case_field(case: dict) -> RegionField:
    return RegionField(
        field_id="value",
        source_ids=tuple(range(len(case["columns"]))),
        transform=case["transform"],
        result_type=case["result_type"],
        parameters=case["parameters"],
    )


@pytest.mark.req("SPEC-16", "SPEC-17", "SPEC-18", "SPEC-19", "SPEC-20", "SPEC-21", "SPEC-22", "SPEC-23", "SPEC-24")
@pytest.mark.req("SPEC-07", "SPEC-13", "G-02")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_stored_inputs_give_the_stored_region_values(case):
    columns = {position: column(each["type"], each["values"]) for position, each in enumerate(case["columns"])}
    found = evaluate_field(case_field(case), columns, len(case["expected"]))
    assert found.equals(column(case["result_type"], case["expected"]))


@pytest.mark.req("SPEC-15")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_derived_expressions_give_the_stored_region_values(case):
    columns = [column(each["type"], each["values"]) for each in case["columns"]]
    expression = find_transform(case_field(case)).derive(case_field(case))
    found = evaluate_expression(expression, columns, len(case["expected"]))
    assert found.cast(TYPES[case["result_type"]]).equals(column(case["result_type"], case["expected"]))


@pytest.mark.req("SPEC-25", "G-02")
@pytest.mark.parametrize("vector", json.loads((HERE / "murmur3.json").read_text()), ids=lambda vector: vector["bytes"])
def test_stored_bytes_give_the_stored_hash(vector):
    assert murmur3_multi([pa.array([bytes.fromhex(vector["bytes"])])]).to_pylist() == [vector["hash"]]


@pytest.mark.req("SPEC-21", "G-02")
def test_known_integers_give_the_published_hashes():
    assert murmur3_multi([pa.array([5, 123, 34])]).to_pylist() == [1740791543, 823512154, 2017239379]


@pytest.mark.req("SPEC-21")
@pytest.mark.parametrize(
    "vector", json.loads((HERE / "lance_bucket.json").read_text()), ids=lambda vector: vector["type"]
)
def test_bucket_without_hash_parameter_follows_pylance(vector):
    values = column(vector["type"], vector["values"])
    field = RegionField("bucket", (0,), "bucket", parameters={"num_buckets": str(vector["num_buckets"])})
    assert evaluate_field(field, {0: values}, len(values)).to_pylist() == vector["expected"]


@pytest.mark.req("FMT-42")
def test_spec_of_pylance_reads_and_rewrites_unchanged():
    spec = spec_from_message(pb.RegionSpec.FromString(PYLANCE_BUCKET_SPEC))
    assert spec == RegionSpec(1, (RegionField("bucket", (0,), "bucket", parameters={"num_buckets": "10"}),))
    assert spec_to_message(spec).SerializeToString(deterministic=True) == PYLANCE_BUCKET_SPEC


@pytest.mark.req("FMT-42", "SPEC-07")
@pytest.mark.parametrize(
    ("result_type", "value", "stored"),
    [
        ("int8", -1, "ff"),
        ("int32", 5, "05000000"),
        ("int64", -2, "feffffffffffffff"),
        ("uint64", 2**64 - 1, "ffffffffffffffff"),
        ("boolean", True, "01"),
        ("boolean", False, "00"),
        ("utf8", "hé", "68c3a9"),
        ("large_utf8", "", ""),
        ("binary", b"\x00\xff", "00ff"),
        ("date32", datetime.date(1970, 1, 3), "02000000"),
        ("date64", datetime.date(1970, 1, 2), "005c260500000000"),
    ],
)
def test_region_values_have_the_stored_bytes(result_type, value, stored):
    spec = RegionSpec(1, (RegionField("f", (0,), "identity", result_type=result_type),))
    assert encode_region_value(spec, (value,)) == {"f": bytes.fromhex(stored)}
    assert decode_region_value(spec, {"f": bytes.fromhex(stored)}) == (value,)
