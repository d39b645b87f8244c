"""Index details to bytes and back: field numbers, presence, unknown fields, the legacy layout."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.memwal_index.codec import LegacyIndexError, decode_details, encode_details, is_legacy_payload
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.ids import RegionId
from memwal_core.region.spec import RegionField, RegionSpec

A = RegionId(uuid.UUID("0a000000-0000-4000-8000-000000000001"))
B = RegionId(uuid.UUID("0b000000-0000-4000-8000-000000000002"))
UNKNOWN_99 = b"\x9a\x06\x03abc"  # field 99, length-delimited
PYLANCE_12 = b"\x60\x01"  # field 12, maintain_all_indexes
PYLANCE_11 = b"\x5a\x04\x08\x01\x10\x02"  # field 11, some message

FULL = MemWalIndexDetails(
    snapshot_ts_millis=1_795_228_228_120,
    num_regions=2,
    inline_snapshots=b"snapshot",
    region_specs=(
        RegionSpec(
            1,
            (RegionField("bucket", (0,), "bucket", parameters={"num_buckets": "4", "hash": "murmur3_x86_32"}),),
        ),
        RegionSpec(2, (RegionField("day", (1, 2), None, "col0 / col1", "int64"),)),
    ),
    maintained_indexes=("vec_idx", "text_idx"),
    merged_generations={A: 3, B: 1},
    index_catchup={"vec_idx": {A: 3, B: 1}, "text_idx": {A: 2}},
)


@pytest.mark.req("FMT-33", "FMT-34", "FMT-35", "FMT-36", "FMT-37", "FMT-38", "FMT-39")
@pytest.mark.parametrize(
    ("name", "number", "type_", "repeated"),
    [
        ("snapshot_ts_millis", 1, "TYPE_INT64", False),
        ("num_regions", 2, "TYPE_UINT32", False),
        ("inline_snapshots", 3, "TYPE_BYTES", False),
        ("region_specs", 7, "TYPE_MESSAGE", True),
        ("maintained_indexes", 8, "TYPE_STRING", True),
        ("merged_generations", 9, "TYPE_MESSAGE", True),
        ("index_catchup", 10, "TYPE_MESSAGE", True),
    ],
)
def test_details_field_has_lances_number_and_type(name: str, number: int, type_: str, repeated: bool) -> None:
    field = pb.MemWalIndexDetails.DESCRIPTOR.fields_by_name[name]

    assert field.number == number
    assert field.type == getattr(field, type_)
    assert field.is_repeated is repeated


@pytest.mark.req("FMT-43")
def test_details_message_has_lances_full_name() -> None:
    assert pb.MemWalIndexDetails.DESCRIPTOR.full_name == "lance.table.MemWalIndexDetails"


@pytest.mark.req("IDX-02", "IDX-30", "FMT-40", "FMT-41", "FMT-42")
def test_full_details_round_trip() -> None:
    assert decode_details(encode_details(FULL)) == FULL


@pytest.mark.req("FMT-35", "SHD-13")
def test_unset_and_empty_inline_snapshot_stay_distinguishable() -> None:
    unset = encode_details(MemWalIndexDetails())
    empty = encode_details(MemWalIndexDetails(inline_snapshots=b""))

    assert decode_details(unset).inline_snapshots is None
    assert decode_details(empty).inline_snapshots == b""
    assert not pb.MemWalIndexDetails.FromString(unset).HasField("inline_snapshots")
    assert pb.MemWalIndexDetails.FromString(unset).inline_snapshots == b""


@pytest.mark.req("FMT-44")
def test_unknown_fields_survive_decode_change_encode() -> None:
    payload = encode_details(FULL) + PYLANCE_11 + PYLANCE_12 + UNKNOWN_99

    changed = encode_details(replace(decode_details(payload), snapshot_ts_millis=5))

    assert decode_details(changed).snapshot_ts_millis == 5
    for part in (PYLANCE_11, PYLANCE_12, UNKNOWN_99):
        assert part in changed


@pytest.mark.req("FMT-44", "IDX-29")
def test_change_against_base_keeps_unknown_fields_inside_progress_entries() -> None:
    message = pb.MemWalIndexDetails.FromString(encode_details(FULL) + PYLANCE_12)
    message.merged_generations[0].MergeFromString(UNKNOWN_99)
    message.index_catchup[1].MergeFromString(UNKNOWN_99)
    base = message.SerializeToString(deterministic=True)

    snapshot_only = encode_details(replace(decode_details(base), num_regions=9), base=base)
    progress_too = encode_details(replace(decode_details(base), merged_generations={A: 8, B: 1}), base=base)

    assert snapshot_only.count(UNKNOWN_99) == 2
    assert progress_too.count(UNKNOWN_99) == 2
    assert decode_details(progress_too).merged_generations == {A: 8, B: 1}
    before, after = pb.MemWalIndexDetails.FromString(base), pb.MemWalIndexDetails.FromString(snapshot_only)
    assert [e.SerializeToString() for e in before.merged_generations] == [
        e.SerializeToString() for e in after.merged_generations
    ]


def test_change_against_base_adds_changes_and_removes_progress() -> None:
    base = encode_details(FULL)
    changed = replace(FULL, merged_generations={B: 4}, index_catchup={"new": {B: 4}, "text_idx": {B: 2}})

    assert decode_details(encode_details(changed, base=base)) == changed


def test_change_against_base_replaces_configuration() -> None:
    base = encode_details(FULL)
    changed = replace(FULL, region_specs=FULL.region_specs[:1], maintained_indexes=("x",), inline_snapshots=None)

    assert decode_details(encode_details(changed, base=base)) == changed


@pytest.mark.req("IDX-26", "MRG-02")
def test_region_without_entry_has_merged_nothing() -> None:
    assert decode_details(encode_details(MemWalIndexDetails())).merged_generation(A) == 0


def _legacy_payload() -> bytes:
    # Early layout: field 1 = repeated MemWal message {id {region, generation}, ...}.
    inner = b"\x0a\x08\x0a\x06orders"
    return b"\x0a" + bytes([len(inner)]) + inner


@pytest.mark.req("LEG-06")
def test_wire_type_of_field_1_tells_legacy_from_current() -> None:
    assert is_legacy_payload(_legacy_payload())
    assert not is_legacy_payload(encode_details(FULL))


@pytest.mark.req("LEG-06")
def test_current_payload_without_field_1_is_current() -> None:
    without = encode_details(replace(FULL, snapshot_ts_millis=0))

    assert not is_legacy_payload(without)
    assert not is_legacy_payload(b"")
    assert decode_details(without).num_regions == 2


@pytest.mark.req("LEG-07")
def test_legacy_payload_is_refused_rather_than_read_as_empty() -> None:
    with pytest.raises(LegacyIndexError, match="refuse to touch") as caught:
        decode_details(_legacy_payload())

    assert isinstance(caught.value, InvalidRequestError)


@pytest.mark.parametrize("payload", [b"\xff", b"\x0a\x20short", b"\x08"])
def test_broken_payload_is_corruption(payload: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_details(payload)


def test_region_with_two_progress_entries_is_corruption() -> None:
    message = pb.MemWalIndexDetails()
    for generation in (1, 2):
        message.merged_generations.add(region_id=pb.UUID(uuid=A.bytes), generation=generation)

    with pytest.raises(CorruptionError, match="two progress entries"):
        decode_details(message.SerializeToString())


def test_index_with_two_catchup_entries_is_corruption() -> None:
    message = pb.MemWalIndexDetails()
    for _ in range(2):
        message.index_catchup.add(index_name="vec_idx")

    with pytest.raises(CorruptionError, match="two catch-up entries"):
        decode_details(message.SerializeToString())


def test_region_id_of_wrong_length_is_corruption() -> None:
    message = pb.MemWalIndexDetails()
    message.merged_generations.add(region_id=pb.UUID(uuid=b"short"), generation=1)

    with pytest.raises(CorruptionError, match="not a UUID"):
        decode_details(message.SerializeToString())
