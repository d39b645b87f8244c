"""Stored bytes of region manifests; a change of these tests is a change of the format."""

import uuid

import pytest

from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration, RegionManifest, RegionStatus

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))

OURS = RegionManifest(
    region_id=REGION,
    version=5,
    region_spec_id=3,
    region_field_values={"bucket": b"\x05\x00\x00\x00", "name": b""},
    writer_epoch=2,
    replay_after_wal_id=30,
    wal_id_last_seen=31,
    current_generation=3,
    flushed_generations=(
        FlushedGeneration(1, "abc123_gen_1", in_memory_bytes=77, physical_rows=3, unknown=bytes.fromhex("2818")),
        FlushedGeneration(2, "a1b2c3d4_gen_2"),
    ),
    status=RegionStatus.SEALED,
    commit_id=bytes(range(16)),
    unknown=bytes.fromhex("980607"),
)
OURS_HEX = (
    "d13e1a7a0cc577065f1708051002181e201f300342160801120c6162633132335f67656e5f31184d2003281842120802"
    "120e61316232633364345f67656e5f3250035a120a106f9619ff8b864011b42d00c04fc964ff720e0a066275636b6574"
    "12040500000072060a046e616d657801ca3e10000102030405060708090a0b0c0d0e0f980607"
)

# Written by pylance 14.0.2: claim, three rows flushed, claim, fence, one row flushed.
FIRST_OF_PYLANCE_HEX = "0801100130015a120a106f9619ff8b864011b42d00c04fc964ff"
LAST_OF_PYLANCE_HEX = (
    "0805100218032003300342180801120e36343137363535305f67656e5f31184d2003281842180802120e33346361356630"
    "355f67656e5f321835200128085a120a106f9619ff8b864011b42d00c04fc964ff"
)


@pytest.mark.req("FMT-22", "FMT-23", "FMT-24", "FMT-25", "FMT-26", "FMT-27", "FMT-29", "FMT-30", "FMT-31")
def test_our_manifest_has_these_bytes() -> None:
    assert encode_manifest(OURS).hex() == OURS_HEX


@pytest.mark.req("FMT-22", "FMT-44")
def test_these_bytes_are_our_manifest() -> None:
    decoded = decode_manifest(bytes.fromhex(OURS_HEX), region_id=REGION, version=5)
    assert decoded == OURS
    assert decoded.commit_id == OURS.commit_id


@pytest.mark.req("FMT-22", "FMT-28")
def test_first_manifest_of_pylance_is_read() -> None:
    decoded = decode_manifest(bytes.fromhex(FIRST_OF_PYLANCE_HEX), region_id=REGION, version=1)
    assert decoded == RegionManifest(region_id=REGION, version=1, writer_epoch=1, current_generation=1)


@pytest.mark.req("FMT-22", "FMT-32", "FMT-44")
def test_manifest_of_pylance_is_read_with_its_accounting() -> None:
    decoded = decode_manifest(bytes.fromhex(LAST_OF_PYLANCE_HEX), region_id=REGION, version=5)
    assert decoded == RegionManifest(
        region_id=REGION,
        version=5,
        writer_epoch=2,
        replay_after_wal_id=3,
        wal_id_last_seen=3,
        current_generation=3,
        flushed_generations=(
            FlushedGeneration(1, "64176550_gen_1", in_memory_bytes=77, physical_rows=3, unknown=bytes.fromhex("2818")),
            FlushedGeneration(2, "34ca5f05_gen_2", in_memory_bytes=53, physical_rows=1, unknown=bytes.fromhex("2808")),
        ),
    )


@pytest.mark.req("FMT-44")
def test_rewritten_manifest_of_pylance_keeps_every_byte_of_its_records() -> None:
    original = bytes.fromhex(LAST_OF_PYLANCE_HEX)
    rewritten = encode_manifest(decode_manifest(original, region_id=REGION, version=5))
    # Ours only adds the checksum in front; there was no commit id to keep.
    assert rewritten.endswith(original)
    assert len(rewritten) == len(original) + 10
