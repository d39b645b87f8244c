"""Specs of tables that pylance sharded: read from its index, routed as it routes."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.pb import table_manifest_pb2 as manifest_pb
from memwal_core.region.spec import RegionRouter, RegionSpec, evaluate_field, spec_from_message, validate_spec

IDS = {"id": 0, "value": 1}


def initialised(path: Path, key: pa.Array, **sharding) -> RegionSpec:
    """Create a table, initialise its MemWAL with pylance, and read the spec from its index."""
    field = pa.field("id", key.type, nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    rows = pa.table([key, pa.array(range(len(key)))], schema=pa.schema([field, ("value", pa.int64())]))
    table = lance.write_dataset(rows, str(path))
    table.initialize_mem_wal(**sharding)
    raw = (path / "_versions" / f"{2**64 - 1 - table.version:020d}.manifest").read_bytes()

    def message_at(offset: int) -> bytes:
        return raw[offset + 4 : offset + 4 + int.from_bytes(raw[offset : offset + 4], "little")]

    manifest = manifest_pb.Manifest.FromString(message_at(int.from_bytes(raw[-16:-8], "little")))
    section = manifest_pb.IndexSection.FromString(message_at(manifest.index_section))
    [index] = [each for each in section.indices if each.name == "__lance_mem_wal"]
    [spec] = pb.MemWalIndexDetails.FromString(index.index_details.value).region_specs
    return spec_from_message(spec)


@pytest.mark.req("FMT-42", "SPEC-21", "SPEC-30")
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.uint64()], ids=str)
def test_bucket_of_pylance_routes_where_pylance_does(tmp_path, kind):
    key = pa.array(range(1000), kind)
    spec = initialised(tmp_path / "t", key, bucket_column="id", num_buckets=16)
    assert [warning.code for warning in validate_spec(spec, {0: pa.field("id", kind)}, {0})] == ["lance_hash"]

    rows = pa.table({"id": key, "value": pa.array(range(1000))})
    table = lance.dataset(str(tmp_path / "t"))
    native = lance.ShardingSpec(
        1,
        [lance.ShardingField("bucket", [0], "bucket", None, "int32", {"num_buckets": "16"})],
    )
    expected = lance.evaluate_sharding_spec(rows.to_batches()[0], native, table.lance_schema).column(0)
    assert evaluate_field(spec.fields[0], {0: key}, 1000).equals(expected)
    routed = RegionRouter(spec, IDS).route(rows)
    assert sum(each.rows.num_rows for each in routed) == 1000
    for each in routed:
        assert {expected[row].as_py() for row in each.rows["value"].to_pylist()} == set(each.value)


@pytest.mark.req("SPEC-07", "SPEC-16")
@pytest.mark.parametrize(
    "key",
    [
        pa.array([1, 2], pa.int8()),
        pa.array([1, 2**64 - 1], pa.uint64()),
        pa.array([True, False]),
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_string()),
    ],
    ids=lambda key: str(key.type),
)
def test_identity_of_pylance_has_a_result_type_that_is_understood(tmp_path, key):
    spec = initialised(tmp_path / "t", key, identity_column="id")
    assert validate_spec(spec, {0: pa.field("id", key.type)}, {0}) == ()
    assert evaluate_field(spec.fields[0], {0: key}, 2).equals(key)


def test_unsharded_table_of_pylance_has_one_region(tmp_path):
    key = pa.array([1, 2])
    spec = initialised(tmp_path / "t", key, unsharded=True)
    [only] = RegionRouter(spec, IDS).route(pa.table({"id": key}))
    assert only.value == (0,)
