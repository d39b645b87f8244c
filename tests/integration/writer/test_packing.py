"""Tiny WAL entries are packed at flush, large ones shared; superseded rows are hidden in packed vectors (P5)."""

from collections.abc import Sequence
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.format.paths import generation_path, wal_entry_name
from memwal_core.ids import IdSource, RegionId
from memwal_core.region import FlushedGeneration, ManifestStore
from memwal_core.writer import RegionWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.native_regions import native_scan
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import create_region, flushed_rows, writer_settings

SMALL_BYTES = 20_000
SETTINGS = writer_settings(pack_below_bytes=SMALL_BYTES)


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def table(request: pytest.FixtureRequest, tmp_path: Path):
    made = make_people_table(str(tmp_path / "people.lance"), settings=SETTINGS)
    store = FaultyStore(made.store)
    store.has_links = request.param
    return reopened(made, store, SETTINGS)


def written(table, puts: Sequence[pa.Table]) -> tuple[RegionId, FlushedGeneration]:
    region_id = create_region(table)
    with RegionWriter.open(table, region_id) as writer:
        for rows in puts:
            writer.put(rows)
        record = writer.flush()
    assert record is not None
    return region_id, record


def files(table, region_id: RegionId, record: FlushedGeneration) -> list[str]:
    dataset = lance.dataset(table.store.uri_of(generation_path(region_id, record.path)))
    dataset.validate()
    return [file.path for fragment in dataset.get_fragments() for file in fragment.data_files()]


def test_many_one_row_puts_are_one_file(table) -> None:
    region_id, record = written(table, [people(number % 150, name=f"n{number}") for number in range(300)])
    assert files(table, region_id, record) == [f"{record.path}_0.lance"]
    assert record.wal_digest is None
    assert record.physical_rows == 150
    assert flushed_rows(table, region_id, record) == {number: f"n{150 + number}" for number in range(150)}


def test_large_puts_between_small_ones_are_not_copied(table) -> None:
    large = people(*range(2000), name="large")
    region_id, record = written(table, [people(1), people(2), large, people(3, name="new"), people(1, name="new")])
    assert files(table, region_id, record) == [wal_entry_name(3, ".lance"), f"{record.path}_1.lance"]
    expected = dict.fromkeys(range(2000), "large") | {1: "new", 3: "new"}
    assert flushed_rows(table, region_id, record) == expected
    manifests = [ManifestStore(table.store, IdSource()).load(region_id)]
    rows = native_scan(table.uri, manifests, ["id", "name"], "id")
    assert dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)) == expected


def test_hot_keys_are_hidden_in_every_large_entry_by_one_vector_each(table) -> None:
    puts = [people(*range(number, 3000 + number), name=f"put {number}") for number in range(4)]
    region_id, record = written(table, puts)
    dataset = lance.dataset(table.store.uri_of(generation_path(region_id, record.path)))
    dataset.validate()
    vectors = [fragment.metadata.deletion_file for fragment in dataset.get_fragments()]
    assert [vector.num_deleted_rows if vector else 0 for vector in vectors] == [2999, 2999, 2999, 0]
    expected = {number: f"put {number}" for number in range(3)} | dict.fromkeys(range(3, 3003), "put 3")
    assert flushed_rows(table, region_id, record) == expected
    assert dataset.version == 2
