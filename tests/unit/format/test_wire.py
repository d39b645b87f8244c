"""Varints and fields by hand are those of the protobuf library."""

from __future__ import annotations

import pytest
from google.protobuf.internal import decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.format.malformed import MalformedError
from memwal_core.format.pb import lance_file_pb2, mem_wal_pb2
from memwal_core.format.wire import nested, number, read_varint, varint

NUMBERS = st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1))


@settings(derandomize=True, deadline=None)
@given(value=NUMBERS, before=st.binary(max_size=3), behind=st.binary(max_size=3))
def test_number_comes_back_with_the_place_where_it_ends(value: int, before: bytes, behind: bytes) -> None:
    data = before + varint(value) + behind
    assert read_varint(data, len(before)) == (value, len(data) - len(behind))


@settings(derandomize=True, deadline=None)
@given(value=NUMBERS)
def test_fields_are_those_of_the_protobuf_library(value: int) -> None:
    assert number(1, value) == (mem_wal_pb2.RegionManifest(version=value).SerializeToString() or b"\x08\x00")
    message = lance_file_pb2.Schema(metadata={"key": b"v" * (value % 400)})
    entry = nested(1, b"key") + nested(2, b"v" * (value % 400))
    assert nested(5, entry) == message.SerializeToString()


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9])
def test_varint_that_is_cut_off_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="end within a varint"):
        read_varint(data, 0)


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x00", b"\xff" * 1_000_000])
def test_varint_of_more_than_64_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="more than 64 bits"):
        read_varint(data, 0)


@settings(derandomize=True, deadline=None)
@given(data=st.binary(max_size=12))
def test_any_bytes_give_what_the_protobuf_library_gives_or_are_malformed(data: bytes) -> None:
    try:
        found = read_varint(data, 0)
    except MalformedError:
        assert len(data) == 0 or data[:9] == bytes(byte | 0x80 for byte in data[:9])
        return
    assert found == decoder._DecodeVarint(data, 0)  # type: ignore[attr-defined]
