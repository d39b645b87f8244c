"""A changed byte anywhere in a WAL entry stops the replay."""

from pathlib import Path

import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError
from memwal_core.format.paths import wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.region import RegionStatus
from memwal_core.wal import codec_for_suffix
from memwal_core.writer import RegionWriter
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import create_region, writer_settings
from testkit.tables.wal_entries import LANCE_CODEC

SUFFIX = {RegionStatus.SEALED: ".lance", RegionStatus.ACTIVE: ".arrow"}


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), settings=writer_settings())


def _rewrite(table, path: str, data: bytes) -> None:
    Path(table.store.uri_of(path)).write_bytes(data)


@pytest.mark.req("LEASE-26", "WRT-38")
@pytest.mark.parametrize("status", RegionStatus)
def test_every_flipped_byte_of_an_entry_is_corruption(table, status: RegionStatus) -> None:
    region_id = create_region(table, status)
    wal_id = RegionWriter.open(table, region_id).put(people(1, 2)).wal_id
    codec = codec_for_suffix(SUFFIX[status], table.state().column_ids)
    path = wal_entry_path(region_id, wal_id, codec.suffix)
    whole = table.store.get(path)
    assert codec.read(table.store, region_id, wal_id).rows.num_rows == 2
    accepted = []
    for position in range(len(whole)):
        _rewrite(table, path, whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            codec.read(table.store, region_id, wal_id)
            accepted.append(position)
        except CorruptionError:
            pass
    assert accepted == []
    for length in (0, 7, len(whole) // 2, len(whole) - 1):
        _rewrite(table, path, whole[:length])
        with pytest.raises(CorruptionError):
            codec.read(table.store, region_id, wal_id)


@pytest.mark.req("LEASE-26")
def test_a_damaged_entry_stops_the_replay_of_the_region(table) -> None:
    region_id = create_region(table)
    writer = RegionWriter.open(table, region_id)
    for key in (1, 2, 3):
        writer.put(people(key))
    path = wal_entry_path(region_id, 2, ".lance")
    data = bytearray(table.store.get(path))
    data[3] ^= 1
    _rewrite(table, path, bytes(data))
    with pytest.raises(CorruptionError) as caught:
        RegionWriter.open(table, region_id)
    assert caught.value.facts["wal_id"] == 2


def test_values_that_look_like_a_checksum_do_not_confuse_it(table) -> None:
    region_id = create_region(table)
    tricky = "memwal:checksum\x12\x1cmemwal-xxh3:0123456789abcdef"
    RegionWriter.open(table, region_id).put(people(1, 2, name=tricky))
    rows = LANCE_CODEC.read(table.store, region_id, 1).rows
    assert rows.column("name").to_pylist() == [tricky, tricky]


@pytest.mark.req("FMT-10")
def test_the_lance_entry_of_an_unknown_writer_is_refused(table) -> None:
    region_id = create_region(table)
    path = wal_entry_path(region_id, 1, ".lance")
    table.store.put_if_absent(path, pa.BufferOutputStream().getvalue().to_pybytes() + b"not a Lance file" * 10)
    with pytest.raises(CorruptionError):
        LANCE_CODEC.read(table.store, region_id, 1)
    assert IdSource().region_id() != region_id
