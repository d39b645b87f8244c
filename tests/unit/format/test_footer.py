"""Footers come back as written, and none leads outside of its file."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileWriter

from memwal_core.format.footer import (
    FILE_FOOTER_BYTES,
    PLACE,
    FileFooter,
    ManifestFooter,
    read_file_footer,
    read_manifest_footer,
)
from memwal_core.format.malformed import MalformedError

GOOD = FileFooter(columns_start=0, column_places=20, buffer_places=52, buffers=1, columns=2, major=2, minor=1)
BODY = 52 + PLACE.size


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_footer_of_a_file_that_lance_wrote_names_its_columns_and_its_schema(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.lance"
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        writer.write_batch(pa.record_batch([[1, 2], ["a", "b"]], schema=schema))
    data = path.read_bytes()

    footer = read_file_footer(data[-FILE_FOOTER_BYTES:], len(data))

    assert footer == read_file_footer(data, len(data))
    assert footer.columns == 2
    assert footer.pack() == data[-FILE_FOOTER_BYTES:]
    start, size = PLACE.unpack_from(data, footer.buffer_places)
    assert b"text" in data[start : start + size]


def test_tables_that_end_at_the_footer_are_within_the_file() -> None:
    assert read_file_footer(GOOD.pack(), BODY + FILE_FOOTER_BYTES) == GOOD


@pytest.mark.parametrize(
    "change",
    [
        {"columns_start": BODY + 1},
        {"columns_start": 2**64 - 1},
        {"column_places": 2**64 - 1},
        {"columns": 2**32 - 1},
        {"columns": 4},
        {"buffer_places": 53},
        {"buffer_places": 2**64 - 1},
        {"buffers": 2},
        {"buffers": 2**32 - 1},
    ],
    ids=str,
)
def test_footer_that_points_outside_of_its_file_is_malformed(change: dict[str, int]) -> None:
    with pytest.raises(MalformedError, match="outside of the file"):
        read_file_footer(GOOD._replace(**change).pack(), BODY + FILE_FOOTER_BYTES)


@pytest.mark.parametrize("data", [b"", b"LANC", GOOD.pack()[1:], GOOD.pack()[:-1] + b"c", GOOD.pack()[:-4] + b"PAR1"])
def test_bytes_without_the_footer_of_a_file_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="Lance file"):
        read_file_footer(data, BODY + FILE_FOOTER_BYTES)


@pytest.mark.parametrize("data", [b"", b"LANC", b"x" * 15, b"x" * 16])
def test_bytes_without_the_footer_of_a_manifest_are_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="table manifest"):
        read_manifest_footer(data)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**16 - 1), st.integers(0, 2**16 - 1), st.binary(max_size=8))
def test_footer_of_a_manifest_comes_back(offset: int, major: int, minor: int, before: bytes) -> None:
    footer = ManifestFooter(offset, major, minor)
    assert footer.pack() == struct.pack("<QHH4s", offset, major, minor, b"LANC")
    assert read_manifest_footer(before + footer.pack()) == footer
