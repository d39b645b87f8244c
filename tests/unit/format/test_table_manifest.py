"""Reading and replacing the MemWAL index in the bytes of a table manifest."""

from __future__ import annotations

import struct
import uuid

import pytest

from memwal_core.errors import CorruptionError
from memwal_core.format.pb import table_manifest_pb2 as pb
from memwal_core.format.table_manifest import (
    TAIL_BYTES,
    ManifestFacts,
    MemWalEntry,
    read_manifest,
    replace_mem_wal_entry,
)

INDEX_ID = uuid.UUID("0a000000-0000-4000-8000-000000000001")
OTHER_ID = uuid.UUID("0b000000-0000-4000-8000-000000000002")
TYPE_URL = "/lance.table.MemWalIndexDetails"
UNKNOWN_99 = b"\x9a\x06\x03abc"
TRANSACTION = b"<transaction section>"


def _section(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def manifest_file(*payloads: bytes, type_url: str = TYPE_URL, padding: int = 0, unknown: bytes = b"") -> bytes:
    """Return a manifest file as Lance lays it out: indexes, transaction, manifest, footer."""
    listed = pb.IndexSection()
    listed.indices.add(name="v_idx", fields=[1], fragment_bitmap=b"bitmap")
    for payload in payloads:
        index = listed.indices.add(name="__lance_mem_wal", dataset_version=2)
        index.uuid.uuid = INDEX_ID.bytes
        index.index_details.type_url = type_url
        index.index_details.value = payload
        index.MergeFromString(unknown)
    manifest = pb.Manifest(version=7, index_section=0)
    manifest.timestamp.seconds = 1_795_228_228
    manifest.MergeFromString(unknown)
    before = _section(listed.SerializeToString()) + _section(TRANSACTION) + b"\0" * padding
    return before + _section(manifest.SerializeToString()) + struct.pack("<QHH4s", len(before), 0, 3, b"LANC")


def _read(data: bytes) -> tuple[ManifestFacts, list[tuple[int, int]]]:
    requests: list[tuple[int, int]] = []

    def read(start: int, length: int) -> bytes:
        requests.append((start, length))
        return data[start : start + length]

    return read_manifest(len(data), read), requests


def test_small_manifest_is_read_in_one_request() -> None:
    facts, requests = _read(manifest_file(b"payload"))

    assert (facts.version, facts.timestamp.year, facts.mem_wal) == (7, 2026, MemWalEntry(INDEX_ID, b"payload"))
    assert len(requests) == 1


def test_large_manifest_is_not_read_twice() -> None:
    data = manifest_file(b"payload", padding=10 * TAIL_BYTES)

    facts, requests = _read(data)

    assert facts.mem_wal == MemWalEntry(INDEX_ID, b"payload")
    assert requests[0] == (len(data) - TAIL_BYTES, TAIL_BYTES)
    assert sum(length for _, length in requests[1:]) < 1000


def test_manifest_without_mem_wal_index_has_no_entry() -> None:
    assert _read(manifest_file())[0].mem_wal is None


def test_manifest_without_index_section_has_no_entry() -> None:
    data = pb.Manifest(version=1).SerializeToString()
    facts, _ = _read(_section(data) + struct.pack("<QHH4s", 0, 0, 3, b"LANC"))

    assert facts.mem_wal is None


@pytest.mark.req("FMT-44", "IDX-29")
def test_replaced_entry_leaves_everything_else_byte_for_byte() -> None:
    before = manifest_file(b"old", unknown=UNKNOWN_99)
    old_offset = struct.unpack("<Q", before[-16:-8])[0]

    after = replace_mem_wal_entry(before, lambda entry: MemWalEntry(OTHER_ID, entry.payload + b" and new"))

    assert after[:old_offset] == before[:old_offset]
    assert after[-8:] == before[-8:]
    assert _read(after)[0].mem_wal == MemWalEntry(OTHER_ID, b"old and new")
    offset, length = struct.unpack_from("<Q", after, len(after) - 16)[0], 0
    (length,) = struct.unpack_from("<I", after, offset)
    manifest = pb.Manifest.FromString(after[offset + 4 : offset + 4 + length])
    (length,) = struct.unpack_from("<I", after, manifest.index_section)
    listed = pb.IndexSection.FromString(after[manifest.index_section + 4 : manifest.index_section + 4 + length])
    assert (manifest.version, manifest.timestamp.seconds) == (7, 1_795_228_228)
    assert UNKNOWN_99 in manifest.SerializeToString()
    assert UNKNOWN_99 in listed.indices[1].SerializeToString()
    assert listed.indices[0] == pb.IndexMetadata(name="v_idx", fields=[1], fragment_bitmap=b"bitmap")


def test_unchanged_entry_leaves_the_file_as_it_is() -> None:
    data = manifest_file(b"payload")

    assert replace_mem_wal_entry(data, lambda entry: entry) is data


def test_replacing_a_missing_entry_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="lost the MemWAL index"):
        replace_mem_wal_entry(manifest_file(), lambda entry: entry)


@pytest.mark.req("IDX-01")
def test_two_mem_wal_indexes_are_corruption() -> None:
    with pytest.raises(CorruptionError, match="exactly one"):
        _read(manifest_file(b"one", b"two"))


@pytest.mark.req("FMT-43")
def test_index_details_of_another_type_are_corruption() -> None:
    with pytest.raises(CorruptionError, match="exactly one"):
        _read(manifest_file(b"payload", type_url="/lance.table.BTreeIndexDetails"))


def test_any_changed_byte_gives_facts_or_is_corruption() -> None:
    """Bytes from a store are untrusted: no position, length, id or time may end in another error."""
    data = manifest_file(b"payload", unknown=UNKNOWN_99)
    refused = 0
    for at in range(len(data)):
        for bits in (0x01, 0x04, 0x80, 0xFF):
            changed = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
            try:
                facts, _ = _read(changed)
            except CorruptionError:
                refused += 1
            else:
                assert isinstance(facts, ManifestFacts)
    assert refused > len(data)


def test_time_that_python_does_not_know_is_corruption() -> None:
    manifest = pb.Manifest(version=1)
    manifest.timestamp.seconds = 2**62
    with pytest.raises(CorruptionError, match="cannot be read"):
        _read(_section(manifest.SerializeToString()) + struct.pack("<QHH4s", 0, 0, 3, b"LANC"))


@pytest.mark.parametrize("index_id", [b"", b"short", b"x" * 17])
def test_id_that_is_not_a_uuid_is_corruption(index_id: bytes) -> None:
    listed = pb.IndexSection()
    index = listed.indices.add(name="__lance_mem_wal")
    index.uuid.uuid = index_id
    index.index_details.type_url = TYPE_URL
    section = _section(listed.SerializeToString())
    manifest = _section(pb.Manifest(version=1, index_section=0).SerializeToString())
    with pytest.raises(CorruptionError, match="cannot be read"):
        _read(section + manifest + struct.pack("<QHH4s", len(section), 0, 3, b"LANC"))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"LANC",
        manifest_file(b"p")[:-1],
        manifest_file(b"p")[:-4] + b"NOPE",
        b"x" * 40 + struct.pack("<QHH4s", 1 << 40, 0, 3, b"LANC"),
        b"\xff" * 40 + struct.pack("<QHH4s", 0, 0, 3, b"LANC"),
        b"\x04\0\0\0\xff\xff\xff\xff" + struct.pack("<QHH4s", 0, 0, 3, b"LANC"),
    ],
)
def test_file_that_is_no_manifest_is_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        _read(data)
