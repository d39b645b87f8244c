"""Entries whose checksum fits bytes that no writer wrote: anybody who may write the file can make it fit."""

from __future__ import annotations

import struct
import uuid

import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.storage import open_store
from memwal_core.wal import ArrowCodec, LanceCodec, WalCodec
from memwal_core.wal.entry import ATTEMPT_KEY, FIELD_ID_KEY, WRITER_EPOCH_KEY, noted_column_ids
from testkit.fuzz.changes.reseal import reseal
from testkit.tables.wal_entries import written_entry

REGION = RegionId(uuid.UUID("00000000-0000-4000-8000-000000000001"))
ROWS = pa.table({"name": ["mango", "peach"]})
CODECS = [LanceCodec({}), ArrowCodec({})]


@pytest.fixture(params=CODECS, ids=["lance", "arrow"])
def codec(request) -> WalCodec:
    return request.param


def _decoded(codec: WalCodec, data: bytes):
    return codec.decode(open_store("memory://"), REGION, 1, reseal(data, f"1{codec.suffix}"))


def _entry(codec: WalCodec, tmp_path) -> bytes:
    return written_entry(tmp_path / "entry", codec, ROWS, {WRITER_EPOCH_KEY: "3", ATTEMPT_KEY: "ab"})


def test_entry_that_nobody_touched_is_read(codec, tmp_path) -> None:
    assert _decoded(codec, _entry(codec, tmp_path)).rows.column("name").to_pylist() == ["mango", "peach"]


def test_text_that_is_none_is_damage_and_not_an_error_of_whoever_reads_it(codec, tmp_path) -> None:
    data = _entry(codec, tmp_path)
    with pytest.raises(CorruptionError, match="cannot be read"):
        _decoded(codec, data.replace(b"mangopeach", b"mango\xff\xfeach"))


def test_values_that_end_outside_of_their_buffer_are_damage(codec, tmp_path) -> None:
    data = _entry(codec, tmp_path)
    width = "<Q" if codec.suffix == ".lance" else "<i"
    ends = struct.pack(width, 5) + struct.pack(width, 10)
    assert ends in data
    with pytest.raises(CorruptionError, match="cannot be read"):
        _decoded(codec, data.replace(ends, struct.pack(width, 2**30) + struct.pack(width, 10)))


@pytest.mark.parametrize("epoch", ["9" * 5000, str(2**64), "-1", "\u0664", ""])
def test_epoch_that_is_no_number_of_64_bits_is_damage_and_not_an_error_of_python(codec, epoch, tmp_path) -> None:
    data = written_entry(tmp_path / "entry", codec, ROWS, {WRITER_EPOCH_KEY: epoch, ATTEMPT_KEY: "ab"})
    with pytest.raises(CorruptionError, match="has no writer epoch"):
        codec.decode(open_store("memory://"), REGION, 1, data)


def test_field_ids_that_are_no_numbers_count_as_none() -> None:
    schema = pa.schema([pa.field("name", pa.string(), metadata={FIELD_ID_KEY: b"9" * 5000})])
    assert noted_column_ids(schema) is None
