"""The message with shard names is the same bytes as ours: one decoder serves both vocabularies."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

from memwal_core.format.memwal_index.codec import decode_details
from memwal_core.format.memwal_index.rules import caught_up_generation, is_inline
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest
from memwal_core.settings import IndexSettings

SHARD_PROTO = """
syntax = "proto3";
package lance.table;
message UUID { bytes uuid = 1; }
message ShardManifest {
  uint64 version = 1;
  uint64 writer_epoch = 2;
  uint64 replay_after_wal_entry_position = 3;
  uint64 wal_entry_position_last_seen = 4;
  uint64 current_generation = 6;
  repeated FlushedGeneration flushed_generations = 8;
  uint32 shard_spec_id = 10;
  UUID shard_id = 11;
}
message FlushedGeneration { uint64 generation = 1; string path = 2; }
message MergedGeneration { UUID shard_id = 1; uint64 generation = 2; }
message IndexCatchupProgress { string index_name = 1; repeated MergedGeneration caught_up_generations = 2; }
message ShardField {
  string field_id = 1;
  repeated int32 source_ids = 2;
  optional string transform = 3;
  optional string expression = 4;
  string result_type = 5;
  map<string, string> parameters = 6;
}
message ShardSpec { uint32 spec_id = 1; repeated ShardField fields = 2; }
message MemWalIndexDetails {
  int64 snapshot_ts_millis = 1;
  uint32 num_shards = 2;
  optional bytes inline_snapshots = 3;
  repeated ShardSpec shard_specs = 7;
  repeated string maintained_indexes = 8;
  repeated MergedGeneration merged_generations = 9;
  repeated IndexCatchupProgress index_catchup = 10;
}
"""
REGION = uuid.UUID("a11ce000-0000-4000-8000-000000000001")


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    """The messages under their other names, in a pool of their own because the full name is the same."""
    folder: Path = tmp_path_factory.mktemp("proto")
    (folder / "shard.proto").write_text(SHARD_PROTO)
    out = folder / "shard.bin"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", str(folder / "shard.proto")]) == 0
    pool = descriptor_pool.DescriptorPool()
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in files.file:
        pool.Add(file)

    def message(name):
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"lance.table.{name}"))

    return message


def region_details():
    return pb.MemWalIndexDetails(
        snapshot_ts_millis=7,
        num_regions=3,
        inline_snapshots=b"",
        region_specs=[
            pb.RegionSpec(
                spec_id=1,
                fields=[
                    pb.RegionField(
                        field_id="b", source_ids=[0], transform="bucket", result_type="int32", parameters={"n": "4"}
                    )
                ],
            )
        ],
        maintained_indexes=["v_idx"],
        merged_generations=[pb.MergedGeneration(region_id=pb.UUID(uuid=REGION.bytes), generation=5)],
        index_catchup=[
            pb.IndexCatchupProgress(
                index_name="v_idx",
                caught_up_generations=[pb.MergedGeneration(region_id=pb.UUID(uuid=REGION.bytes), generation=4)],
            )
        ],
    )


@pytest.mark.req("SHD-01", "SHD-02", "SHD-03", "SHD-05", "SHD-14")
def test_details_written_with_region_names_read_with_shard_names(shard):
    ours = region_details()
    theirs = shard("MemWalIndexDetails").FromString(ours.SerializeToString())
    assert theirs.DESCRIPTOR.full_name == ours.DESCRIPTOR.full_name == "lance.table.MemWalIndexDetails"
    assert theirs.num_shards == ours.num_regions == 3
    assert theirs.snapshot_ts_millis == 7
    assert theirs.HasField("inline_snapshots")
    (spec,) = theirs.shard_specs
    assert (spec.spec_id, spec.fields[0].field_id, dict(spec.fields[0].parameters)) == (1, "b", {"n": "4"})
    assert list(theirs.maintained_indexes) == ["v_idx"]
    assert theirs.merged_generations[0].shard_id.uuid == REGION.bytes
    assert theirs.index_catchup[0].caught_up_generations[0].generation == 4
    assert theirs.SerializeToString(deterministic=True) == ours.SerializeToString(deterministic=True)


@pytest.mark.req("SHD-01", "SHD-05")
def test_details_written_with_shard_names_are_decoded_as_ours(shard):
    ours = region_details()
    theirs = shard("MemWalIndexDetails").FromString(ours.SerializeToString())
    details = decode_details(theirs.SerializeToString())
    assert details == decode_details(ours.SerializeToString())
    assert details.num_regions == 3
    assert details.merged_generations == {REGION: 5}
    assert details.index_catchup == {"v_idx": {REGION: 4}}


@pytest.mark.req("SHD-04", "SHD-08", "SHD-09", "SHD-10")
def test_region_manifest_is_the_shard_manifest(shard):
    manifest = RegionManifest(
        region_id=REGION,
        version=2,
        region_spec_id=1,
        writer_epoch=3,
        replay_after_wal_id=10,
        wal_id_last_seen=12,
        current_generation=6,
        flushed_generations=(FlushedGeneration(5, "0000000a_gen_5"),),
    )
    theirs = shard("ShardManifest").FromString(encode_manifest(manifest))
    assert (theirs.version, theirs.shard_spec_id, theirs.shard_id.uuid) == (2, 1, REGION.bytes)
    assert (theirs.replay_after_wal_entry_position, theirs.wal_entry_position_last_seen) == (10, 12)
    assert [(each.generation, each.path) for each in theirs.flushed_generations] == [(5, "0000000a_gen_5")]
    back = decode_manifest(theirs.SerializeToString(), region_id=REGION, version=2)
    assert back == manifest


@pytest.mark.req("SHD-17")
def test_index_that_shard_named_bytes_do_not_mention_has_not_caught_up(shard):
    theirs = shard("MemWalIndexDetails").FromString(region_details().SerializeToString())
    details = decode_details(theirs.SerializeToString())
    assert caught_up_generation(details, ["v_idx"], REGION) == 4
    assert caught_up_generation(details, ["v_idx", "other_idx"], REGION) == 0


@pytest.mark.req("SHD-18")
def test_inline_threshold_is_one_setting_for_both_vocabularies():
    threshold = IndexSettings().inline_snapshot_threshold
    assert threshold == 100
    assert is_inline(100, threshold=threshold)
    assert not is_inline(101, threshold=threshold)


@pytest.mark.req("SHD-13")
def test_unset_snapshot_reads_as_empty_bytes_and_its_absence_shows(shard):
    for message in (pb.MemWalIndexDetails(), shard("MemWalIndexDetails")()):
        assert message.inline_snapshots == b""
        assert not message.HasField("inline_snapshots")


@pytest.mark.req("SHD-15")
def test_message_copies_merges_compares_and_begins_empty(shard):
    for kind, ours in ((pb.MemWalIndexDetails, True), (shard("MemWalIndexDetails"), False)):
        full = kind.FromString(region_details().SerializeToString())
        copy = kind()
        copy.CopyFrom(full)
        merged = kind(snapshot_ts_millis=1)
        merged.MergeFrom(full)
        empty = kind()
        assert copy == full == merged
        assert merged.snapshot_ts_millis == 7
        assert (empty.snapshot_ts_millis, len(empty.maintained_indexes)) == (0, 0)
        assert (empty.num_regions if ours else empty.num_shards) == 0
        assert empty.SerializeToString() == b""
