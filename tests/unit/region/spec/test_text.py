"""Region specs as people write them, and how they are shown."""

from __future__ import annotations

import pyarrow as pa
import pytest

from memwal_core.errors import InvalidRequestError
from memwal_core.region.spec import (
    MANUAL_SPEC_ID,
    RegionField,
    RegionSpec,
    bucket_spec,
    identity_spec,
    multi_bucket_spec,
    validate_spec,
)
from memwal_core.region.spec.describe import describe_spec
from memwal_core.region.spec.text import parse_spec

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("tenant", pa.string()),
        ("day", pa.date32()),
        ("odd, (name)", pa.int32()),
        ("v", pa.float32()),
    ]
)
IDS = {name: position for position, name in enumerate(SCHEMA.names)}
FIELDS = {position: SCHEMA.field(position) for position in range(len(SCHEMA))}


def parsed(*texts: str) -> RegionSpec:
    return parse_spec(1, texts, SCHEMA, IDS)


def test_forms_are_the_specs_of_the_constructors() -> None:
    assert parsed("bucket(id, 4)") == bucket_spec(1, "id", IDS, 4)
    assert parsed(" multi_bucket( id ,tenant,8 ) ") == multi_bucket_spec(1, ["id", "tenant"], IDS, 8)
    assert parsed("tenant") == parsed("identity(tenant)") == identity_spec(1, SCHEMA.field("tenant"), IDS)
    assert parsed("odd, (name)") == identity_spec(1, SCHEMA.field("odd, (name)"), IDS)


@pytest.mark.parametrize(
    "texts",
    [
        ["bucket(id, 4)"],
        ["multi_bucket(id, tenant, 8)"],
        ["tenant"],
        ["unsharded"],
        ["truncate(id, 100)"],
        ["truncate(tenant, 2)"],
        *[[f"{part}(day)"] for part in ("year", "month", "day")],
        ["tenant", "bucket(id, 2)"],
    ],
    ids=lambda each: "+".join(each),
)
def test_every_form_is_valid_and_shown_as_it_was_written(texts: list[str]) -> None:
    spec = parsed(*texts)

    validate_spec(spec, FIELDS, set(FIELDS))
    assert describe_spec(spec, IDS) == ", ".join(texts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nothing",
        "bucket(id)",
        "bucket(4)",
        "bucket(id, -1)",
        "bucket(id, tenant, 4)",
        "bucket(nothing, 4)",
        "bucket(id, four)",
        "multi_bucket(8)",
        "year(day, 2)",
        "year()",
        "identity(id, tenant)",
        "decade(day)",
        "unsharded(id)",
        "bucket(id, 4) -- and more",
    ],
)
def test_other_texts_are_refused_with_the_forms_that_are_known(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        parsed(text)
    assert "bucket(COLUMN, N)" in str(caught.value.facts["forms"])
    assert caught.value.facts["text"] == text


def test_type_that_cannot_identify_a_region_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        parsed("v")


def test_specs_of_other_clients_are_described() -> None:
    client = RegionField("bucket", (0,), transform="bucket", parameters={"num_buckets": "4"})
    expression = RegionField("x", (1, 0), expression="length(col0) + col1", result_type="int64")

    assert describe_spec(RegionSpec(1, (client,)), IDS) == "bucket(id, 4)"
    assert describe_spec(RegionSpec(1, (expression,)), IDS) == "length(tenant) + id"
    assert describe_spec(RegionSpec(1, (RegionField("gone", (9,), transform="identity"),)), IDS) == "field 9"
    assert describe_spec(RegionSpec(MANUAL_SPEC_ID, ()), IDS) == ""
