"""Checksums: the published values of the function, what they cover, and that every flipped byte is found."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

from memwal_core.errors import CorruptionError
from memwal_core.format.checksum import ChecksumError, verify_checksum
from memwal_core.format.pb import mem_wal_pb2 as pb
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.wal.arrow_codec import ArrowCodec, metadata_range
from memwal_core.wal.entry import ATTEMPT_KEY
from memwal_core.wal.lance_codec import schema_range
from testkit.tables.people import PEOPLE
from testkit.tables.wal_entries import LANCE_CODEC, written_entry

REGION = RegionId(uuid.UUID("6f9619ff-8b86-4011-b42d-00c04fc964ff"))


@pytest.mark.req("LEASE-24")
@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxh64_has_its_published_values(data: bytes, digest: int) -> None:
    assert xxhash.xxh64_intdigest(data, seed=0) == digest


@pytest.mark.req("LEASE-24", "LEASE-26")
def test_manifest_carries_the_xxh64_of_what_follows_it_and_a_flipped_byte_raises() -> None:
    data = encode_manifest(RegionManifest(region_id=REGION, version=3, writer_epoch=2, current_generation=5))
    checksum = pb.RegionManifest.FromString(data).checksum
    front = pb.RegionManifest(checksum=checksum).SerializeToString()
    assert data.startswith(front)
    assert checksum == xxhash.xxh64_intdigest(data[len(front) :])

    for at in range(len(front), len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x01
        with pytest.raises(CorruptionError):
            decode_manifest(bytes(flipped), region_id=REGION, version=3)


@pytest.mark.req("LEASE-24", "LEASE-26")
def test_checksum_of_a_wal_entry_covers_its_rows_and_its_deletes(tmp_path: Path) -> None:
    rows = pa.table(
        {"id": [1, 2], "name": ["a", None], "score": [0.5, None], "_tombstone": [False, True]},
        schema=PEOPLE.append(pa.field("_tombstone", pa.bool_())),
    )
    data = written_entry(tmp_path / "entry.lance", LANCE_CODEC, rows, {"writer_epoch": "1"})
    assert verify_checksum(data, schema_range)

    found = 0
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x80
        try:
            accepted = verify_checksum(bytes(flipped), schema_range)
        except ChecksumError:
            found += 1
        else:
            # A file whose mark is damaged counts as one of another writer, which carries none.
            assert not accepted, at
    assert found > 0.9 * len(data)


def test_position_in_a_footer_that_nobody_can_index_is_damage_and_no_other_error(tmp_path: Path) -> None:
    """It was an OverflowError, which no caller takes for a damaged entry."""
    data = written_entry(tmp_path / "entry.lance", LANCE_CODEC, PEOPLE.empty_table(), {"writer_epoch": "1"})
    damaged = bytearray(data)
    damaged[-24:-16] = b"\xff" * 8  # Where the footer says that the list of global buffers begins.

    with pytest.raises(ChecksumError, match="footer is damaged"):
        verify_checksum(bytes(damaged), schema_range)


def test_text_of_a_dictionary_that_looks_like_a_checksum_is_none() -> None:
    """An entry of another writer, which has no checksum."""
    rows = pa.table({"id": [1, 2], "name": pa.array(["memwal-xxh3:0123456789abcdef", None]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)

    assert not verify_checksum(sink.getvalue().to_pybytes(), metadata_range)


@pytest.mark.req("LEASE-24", "LEASE-26")
@pytest.mark.parametrize("name", [["a", None], pa.array(["memwal-xxh3:0123456789abcdef", None]).dictionary_encode()])
def test_flipped_byte_of_an_arrow_entry_is_found_and_no_other_error(
    tmp_path: Path, name: list[str | None] | pa.Array
) -> None:
    rows = pa.table({"id": [1, 2], "name": name, "score": [0.5, None]})
    codec = ArrowCodec({"id": (0,), "name": (1,), "score": (2,)})
    data = written_entry(tmp_path / "entry.arrow", codec, rows, {"writer_epoch": "1", ATTEMPT_KEY: "a"})
    assert verify_checksum(data, metadata_range)

    for at in range(len(data)):
        for bit in (0x01, 0x80):
            flipped = bytearray(data)
            flipped[at] ^= bit
            try:
                accepted = verify_checksum(bytes(flipped), metadata_range)
            except ChecksumError:
                continue
            assert not accepted, at
