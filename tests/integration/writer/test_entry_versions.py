"""Entries of an older format version in a region: Lance refuses tables of mixed files, the flush must not."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.format.paths import generation_path, wal_entry_name
from memwal_core.ids import IdSource
from memwal_core.memtable import memtable_schema, with_tombstones
from memwal_core.wal import WalAppender
from memwal_core.writer import RegionWriter
from testkit.tables.people import PEOPLE, make_people_table, people
from testkit.tables.regions import create_region, flushed_rows, writer_settings
from testkit.tables.wal_entries import LANCE_CODEC

SETTINGS = writer_settings(pack_below_bytes=0)


def _append_in_version(table, region_id, epoch: int, last_wal_id: int, rows: pa.Table, version: str) -> None:
    appender = WalAppender(
        table.store,
        region_id,
        LANCE_CODEC,
        writer_epoch=epoch,
        last_wal_id=last_wal_id,
        storage_version=version,
        ids=IdSource(),
    )
    schema = memtable_schema(PEOPLE, ["id"])
    appender.append(with_tombstones(rows, schema, deleted=False))


@pytest.mark.req("WRT-65", "WRT-66", "WRT-72")
@pytest.mark.parametrize("older", ["2.1", "2.2"])
def test_entries_of_another_format_version_are_replayed_and_flushed_by_copy(tmp_path: Path, older: str) -> None:
    table = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    region_id = create_region(table)
    first = RegionWriter.open(table, region_id)
    _append_in_version(table, region_id, first.writer_epoch, 0, people(1, 2, 3, name="old"), older)

    writer = RegionWriter.open(table, region_id)
    writer.put(people(2, 4, name="new"))
    writer.delete(pa.table({"id": [3]}))
    record = writer.flush()
    assert flushed_rows(table, region_id, record) == {1: "old", 2: "new", 3: None, 4: "new"}
    copied = lance.dataset(table.store.uri_of(generation_path(region_id, record.path)))
    names = [file.path for fragment in copied.get_fragments() for file in fragment.data_files()]
    # Only the entry of another version is written again.
    assert names == [f"{record.path}_0.lance", *(wal_entry_name(wal_id, ".lance") for wal_id in (2, 3))]

    writer.put(people(5))
    shared = writer.flush()
    files = [
        file
        for fragment in lance.dataset(table.store.uri_of(generation_path(region_id, shared.path))).get_fragments()
        for file in fragment.data_files()
    ]
    assert [(file.base_id, file.file_major_version, file.file_minor_version) for file in files] == [(None, 2, 0)]
