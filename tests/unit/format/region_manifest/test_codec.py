import uuid

import pytest
from google.protobuf.descriptor import FieldDescriptor

from memwal_core.errors import CorruptionError
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest, RegionStatus
from memwal_core.ids import RegionId

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))
OTHER = RegionId(uuid.UUID("11111111-2222-4333-8444-555555555555"))
FIELD_99 = bytes.fromhex("980607")
FIELD_7 = bytes.fromhex("3809")
PRIMARY_KEY_BYTES = bytes.fromhex("2818")

FULL = RegionManifest(
    region_id=REGION,
    version=5,
    region_spec_id=3,
    region_field_values={"bucket": b"\x05\x00\x00\x00", "name": b""},
    writer_epoch=2,
    replay_after_wal_id=30,
    wal_id_last_seen=31,
    current_generation=3,
    flushed_generations=(
        FlushedGeneration(1, "abc123_gen_1", in_memory_bytes=0, physical_rows=7, unknown=PRIMARY_KEY_BYTES),
        FlushedGeneration(2, "a1b2c3d4_gen_2"),
    ),
    status=RegionStatus.SEALED,
    commit_id=b"c" * 16,
    unknown=FIELD_99,
)


def _decode(data: bytes, version: int = 5) -> RegionManifest:
    return decode_manifest(data, region_id=REGION, version=version)


def _foreign(**fields: object) -> bytes:
    """Return the bytes of a manifest without our own fields."""
    values = {"version": 5, "region_id": pb.UUID(uuid=REGION.bytes), "current_generation": 1, **fields}
    return pb.RegionManifest(**values).SerializeToString()


@pytest.mark.req("FMT-22", "FMT-32")
def test_manifest_comes_back_whole() -> None:
    decoded = _decode(encode_manifest(FULL))
    assert decoded == FULL
    assert decoded.commit_id == FULL.commit_id


@pytest.mark.req("FMT-22")
def test_file_is_one_protobuf_message() -> None:
    message = pb.RegionManifest.FromString(encode_manifest(FULL))
    assert (message.version, message.writer_epoch, message.region_id.uuid) == (5, 2, REGION.bytes)
    assert [(entry.generation, entry.path) for entry in message.flushed_generations] == [
        (1, "abc123_gen_1"),
        (2, "a1b2c3d4_gen_2"),
    ]
    assert pb.RegionManifest.FromString(message.SerializeToString()) == message


@pytest.mark.req("FMT-23", "FMT-24", "FMT-25", "FMT-26", "FMT-27", "FMT-29", "FMT-30", "FMT-31")
@pytest.mark.parametrize(
    ("name", "number", "kind"),
    [
        ("version", 1, FieldDescriptor.TYPE_UINT64),
        ("writer_epoch", 2, FieldDescriptor.TYPE_UINT64),
        ("replay_after_wal_id", 3, FieldDescriptor.TYPE_UINT64),
        ("wal_id_last_seen", 4, FieldDescriptor.TYPE_UINT64),
        ("current_generation", 6, FieldDescriptor.TYPE_UINT64),
        ("flushed_generations", 8, FieldDescriptor.TYPE_MESSAGE),
        ("region_spec_id", 10, FieldDescriptor.TYPE_UINT32),
        ("region_id", 11, FieldDescriptor.TYPE_MESSAGE),
    ],
)
def test_field_has_its_number_and_type(name: str, number: int, kind: int) -> None:
    field = pb.RegionManifest.DESCRIPTOR.fields_by_name[name]
    assert (field.number, field.type) == (number, kind)
    if kind == FieldDescriptor.TYPE_MESSAGE:
        expected = {
            "flushed_generations": ("lance.table.FlushedGeneration", True),
            "region_id": ("lance.table.UUID", False),
        }
        assert (field.message_type.full_name, field.is_repeated) == expected[name]


@pytest.mark.req("FMT-28")
def test_field_seven_is_not_used_and_old_bytes_with_it_still_parse() -> None:
    assert 7 not in pb.RegionManifest.DESCRIPTOR.fields_by_number
    decoded = _decode(_foreign() + FIELD_7)
    assert decoded.unknown == FIELD_7


@pytest.mark.req("FMT-32")
def test_flushed_generation_pairs_a_number_with_a_name() -> None:
    fields = pb.FlushedGeneration.DESCRIPTOR.fields_by_name
    assert (fields["generation"].number, fields["generation"].type) == (1, FieldDescriptor.TYPE_UINT64)
    assert (fields["path"].number, fields["path"].type) == (2, FieldDescriptor.TYPE_STRING)


@pytest.mark.req("FMT-40")
def test_merged_generation_holds_a_region_and_a_number() -> None:
    message = pb.MergedGeneration(region_id=pb.UUID(uuid=REGION.bytes), generation=2**64 - 1)
    back = pb.MergedGeneration.FromString(message.SerializeToString())
    assert (uuid.UUID(bytes=back.region_id.uuid), back.generation) == (REGION, 2**64 - 1)


@pytest.mark.req("FMT-44")
def test_unknown_fields_survive_in_manifest_and_generation() -> None:
    data = encode_manifest(_decode(encode_manifest(FULL)))
    assert _decode(data).unknown == FIELD_99
    assert _decode(data).flushed_generations[0].unknown == PRIMARY_KEY_BYTES
    assert FIELD_99 in data
    assert PRIMARY_KEY_BYTES in data


def test_unset_and_zero_sizes_stay_apart() -> None:
    first, second = _decode(encode_manifest(FULL)).flushed_generations
    assert (first.in_memory_bytes, first.physical_rows) == (0, 7)
    assert (second.in_memory_bytes, second.physical_rows) == (None, None)


@pytest.mark.req("MAN-31")
def test_file_cut_short_anywhere_is_corrupt() -> None:
    data = encode_manifest(FULL)
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            _decode(data[:length])


@pytest.mark.req("MAN-31", "LEASE-26")
def test_any_flipped_bit_behind_the_checksum_is_corrupt() -> None:
    data = bytearray(encode_manifest(FULL))
    for position in range(10, len(data)):
        data[position] ^= 1
        with pytest.raises(CorruptionError):
            _decode(bytes(data))
        data[position] ^= 1
    assert _decode(bytes(data)) == FULL


@pytest.mark.req("MAN-31", "LEASE-26")
def test_appended_bytes_are_corrupt() -> None:
    with pytest.raises(CorruptionError):
        _decode(encode_manifest(FULL) + FIELD_7)


def test_rewritten_message_with_an_outdated_checksum_is_taken_as_foreign() -> None:
    message = pb.RegionManifest.FromString(encode_manifest(FULL))
    message.writer_epoch = 9
    assert _decode(message.SerializeToString()).writer_epoch == 9


@pytest.mark.req("MAN-31")
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 20, b'{"version": 5}'])
def test_garbage_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        _decode(data)


@pytest.mark.req("MAN-03")
def test_version_other_than_the_file_name_is_corrupt() -> None:
    with pytest.raises(CorruptionError) as caught:
        _decode(encode_manifest(FULL), version=6)
    assert (caught.value.facts["found"], caught.value.facts["file_version"]) == (5, 6)


@pytest.mark.parametrize("region_id", [None, b"", b"short", OTHER.bytes])
def test_missing_or_other_region_id_is_corrupt(region_id: bytes | None) -> None:
    with pytest.raises(CorruptionError):
        _decode(_foreign(region_id=None if region_id is None else pb.UUID(uuid=region_id)))


@pytest.mark.parametrize("path", ["../../victim", "..", "wal", "", "/etc", "a/b_gen_1"])
def test_path_outside_the_region_is_corrupt(path: str) -> None:
    with pytest.raises(CorruptionError):
        _decode(_foreign(current_generation=2, flushed_generations=[pb.FlushedGeneration(generation=1, path=path)]))


def test_status_of_a_later_format_is_refused() -> None:
    with pytest.raises(CorruptionError) as caught:
        _decode(_foreign() + bytes.fromhex("7802"))
    assert caught.value.facts["status"] == 2
