"""Ranges and framed messages of a file: nothing outside of it is asked for, and nothing is read twice."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memwal_core.format.bounded import BoundedFile
from memwal_core.format.framing import framed, read_framed
from memwal_core.format.malformed import MalformedError


class Stored:
    """A file in a store that notes what is asked of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.asked.append((start, length))
        return self.data[start : start + length]


def _opened(data: bytes, tail_bytes: int) -> tuple[BoundedFile, Stored]:
    stored = Stored(data)
    return BoundedFile(len(data), stored.read, tail_bytes), stored


@settings(derandomize=True, deadline=None)
@given(data=st.binary(max_size=40), tail=st.integers(0, 50), start=st.integers(-2, 50), length=st.integers(-2, 50))
def test_a_range_is_that_part_of_the_file_or_malformed(data: bytes, tail: int, start: int, length: int) -> None:
    file, stored = _opened(data, tail)
    if start >= 0 and length >= 0 and start + length <= len(data):
        assert file.range(start, length) == data[start : start + length]
    else:
        with pytest.raises(MalformedError, match="outside of a file"):
            file.range(start, length)
    assert all(first >= 0 and first + count <= len(data) for first, count in stored.asked)


def test_the_end_is_asked_for_once() -> None:
    file, stored = _opened(b"0123456789", 4)

    assert (file.tail, file.range(6, 4), file.range(7, 2), file.range(5, 2)) == (b"6789", b"6789", b"78", b"56")
    assert stored.asked == [(6, 4), (5, 2)]


@pytest.mark.parametrize(("data", "tail"), [(b"", 16), (b"abc", 0)])
def test_nothing_is_not_read(data: bytes, tail: int) -> None:
    file, stored = _opened(data, tail)

    assert (file.tail, file.range(0, 0), stored.asked) == (b"", b"", [])


def test_a_file_that_became_shorter_is_malformed() -> None:
    with pytest.raises(MalformedError, match="3 of 4 bytes"):
        BoundedFile(4, lambda start, length: b"abcd"[start : start + length - 1], 4)


@settings(derandomize=True, deadline=None)
@given(messages=st.lists(st.binary(max_size=20), min_size=1, max_size=5), tail=st.integers(0, 60))
def test_framed_messages_come_back_from_where_they_begin(messages: list[bytes], tail: int) -> None:
    file, _ = _opened(b"".join(map(framed, messages)), tail)
    start = 0
    for message in messages:
        assert read_framed(file, start) == message
        start += 4 + len(message)
    assert start == file.size_bytes


@pytest.mark.parametrize("length", [4, 2**31, 2**32 - 1])
def test_a_length_beyond_the_end_is_malformed_and_not_read(length: int) -> None:
    file, stored = _opened(struct.pack("<I", length) + b"abc", 0)

    with pytest.raises(MalformedError, match="outside of a file"):
        read_framed(file, 0)
    assert stored.asked == [(0, 4)]


@pytest.mark.parametrize("start", [-1, 4, 7, 2**63])
def test_a_position_beyond_the_end_is_malformed(start: int) -> None:
    file, _ = _opened(framed(b"abc"), 16)

    with pytest.raises(MalformedError, match="outside of a file"):
        read_framed(file, start)
