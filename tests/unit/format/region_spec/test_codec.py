import pickle

import pytest

from memwal_core.errors import CorruptionError
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_spec.region_value import decode_region_value
from memwal_core.region.spec import RegionField, RegionSpec, bucket_spec, spec_from_message, spec_to_message

UNKNOWN_FIELD = b"\xfa\x3f\x03new"
"""Field 1023, text."""


@pytest.mark.req("FMT-42", "SPEC-02", "SPEC-05")
@pytest.mark.parametrize(
    "spec",
    [
        RegionSpec(1, ()),
        RegionSpec(
            4_000_000_000,
            (
                RegionField("b", (3, 1), "multi_bucket", parameters={"num_buckets": "7", "hash": "murmur3_x86_32"}),
                RegionField("e", (2,), expression="col0 + 1", result_type="int64"),
            ),
        ),
    ],
)
def test_spec_written_and_read_is_equal(spec):
    message = pb.RegionSpec.FromString(spec_to_message(spec).SerializeToString())
    assert spec_from_message(message) == spec


@pytest.mark.req("FMT-42")
def test_unknown_fields_of_spec_and_field_survive_a_rewrite():
    field = pb.RegionField.FromString(pb.RegionField(field_id="f").SerializeToString() + UNKNOWN_FIELD)
    message = pb.RegionSpec.FromString(pb.RegionSpec(spec_id=2, fields=[field]).SerializeToString() + UNKNOWN_FIELD)
    spec = spec_from_message(message)
    assert spec.unknown == spec.fields[0].unknown == UNKNOWN_FIELD
    assert spec_to_message(spec).SerializeToString() == message.SerializeToString()


def test_empty_transform_stays_distinct_from_none():
    field = spec_from_message(pb.RegionSpec(fields=[pb.RegionField(transform="")])).fields[0]
    assert (field.transform, field.expression) == ("", None)


def test_pickled_spec_is_equal():
    spec = bucket_spec(1, "id", {"id": 0}, 4)
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("result_type", ["date32", "date64"])
def test_stored_date_that_is_no_region_value_refuses_its_region(result_type):
    """Another client may store it; it ended in an OverflowError of Python."""
    spec = RegionSpec(1, (RegionField("f", (0,), "identity", result_type=result_type),))
    day = {"date32": 10**7, "date64": 10**7 * 86_400_000}[result_type]
    with pytest.raises(CorruptionError, match="does not fit its field's type"):
        decode_region_value(spec, {"f": day.to_bytes({"date32": 4, "date64": 8}[result_type], "little")})
