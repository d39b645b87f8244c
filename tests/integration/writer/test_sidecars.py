"""Key filters and key index of our flushed MemTables: pylance's readers use them, its writer makes the same."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmPointLookupPlanner, ShardSnapshot

from memwal_core.errors import UnavailableError
from memwal_core.format.paths import generation_path
from memwal_core.ids import IdSource
from memwal_core.key_filter import KEY_FILTER_NAME, PYLANCE_FILTER_NAME, KeyFilter, pylance_filter
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.writer import RegionWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.native_regions import Put, native_region_id, native_scan, write_native_generations
from testkit.tables.people import make_people_table, people, reopened
from testkit.tables.regions import create_region, writer_settings

SETTINGS = writer_settings()


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2, 3, 4, name="base"), settings=SETTINGS)


def _manifest(table, region_id):
    return ManifestStore(table.store, IdSource()).load(region_id)


def _write(table, status: RegionStatus):
    region_id = create_region(table, status)
    with RegionWriter.open(table, region_id) as writer:
        writer.put(people(1, 2, name="old"))
        writer.put(people(2, 9, name="new"))
        writer.delete(pa.table({"id": [3]}))
        writer.flush()
        writer.put(people(9, name="newest"))
        writer.flush()
    return region_id


@pytest.mark.req("FMT-15", "WRT-53", "G-09")
@pytest.mark.parametrize("status", RegionStatus)
def test_pylances_scanner_and_point_lookup_read_our_generations(table, status: RegionStatus) -> None:
    region_id = _write(table, status)
    manifest = _manifest(table, region_id)
    rows = native_scan(table.uri, [manifest], ["id", "name"], "id")
    assert rows.to_pydict() == {"id": [1, 2, 4, 9], "name": ["old", "new", "base", "newest"]}
    snapshot = ShardSnapshot(str(region_id)).with_current_generation(manifest.current_generation)
    for flushed in manifest.flushed_generations:
        snapshot = snapshot.with_sstable(flushed.generation, flushed.path)
    planner = LsmPointLookupPlanner(lance.dataset(table.uri), [snapshot])
    found = {key: planner.plan_lookup(pa.array([key], pa.int64())).to_reader().read_all() for key in (2, 3, 4, 9)}
    assert {key: rows.column("name").to_pylist() for key, rows in found.items()} == {
        2: ["new"],
        3: [],
        4: ["base"],
        9: ["newest"],
    }


@pytest.mark.req("FMT-18", "WRT-53", "WRT-49")
def test_both_filters_of_a_generation_pass_its_keys_tombstones_included(table) -> None:
    region_id = _write(table, RegionStatus.SEALED)
    first = _manifest(table, region_id).flushed_generations[0]
    path = generation_path(region_id, first.path)
    keys = pa.table({"id": [1, 2, 3, 9]})
    filtered = KeyFilter.from_bytes(table.store.get(f"{path}/{KEY_FILTER_NAME}"), path)
    assert filtered.may_contain(keys).all()
    assert not filtered.may_contain(pa.table({"id": [0, 10, 4]})).any()
    assert table.store.get(f"{path}/{PYLANCE_FILTER_NAME}") == pylance_filter(keys, ["id"])


@pytest.mark.req("G-04", "WRT-49")
@pytest.mark.parametrize(
    ("data_type", "values"),
    [
        (pa.int32(), [1, -5, 2**31 - 1]),
        (pa.int64(), [1, -5, 2**40]),
        (pa.string(), ["", "a", "ü" * 30]),
        (pa.binary(), [b"", b"\x00\xff", b"z" * 17]),
    ],
)
def test_the_filter_in_pylances_form_equals_the_one_pylance_writes(tmp_path: Path, data_type, values) -> None:
    key = pa.field("id", data_type, nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    rows = pa.table({"id": pa.array(values, data_type)}, schema=pa.schema([key]))
    uri = str(tmp_path / "t.lance")
    lance.write_dataset(rows.slice(0, 0), uri).initialize_mem_wal()
    write_native_generations(uri, native_region_id(1), [[Put(rows)]])
    (native,) = tmp_path.glob(f"t.lance/_mem_wal/*/*_gen_1/{PYLANCE_FILTER_NAME}")
    assert native.read_bytes() == pylance_filter(rows, ["id"])


@pytest.mark.req("WRT-70", "WRT-71")
def test_a_flush_whose_filter_cannot_be_written_is_not_recorded(table) -> None:
    region_id = create_region(table)
    faulty = FaultyStore(table.store)
    writer = RegionWriter.open(reopened(table, faulty, SETTINGS), region_id)
    writer.put(people(1))
    faulty.fail("put", path=lambda path: path.endswith(KEY_FILTER_NAME))
    with pytest.raises(UnavailableError):
        writer.flush()
    assert _manifest(table, region_id).flushed_generations == ()
    assert writer.flush().generation == 1
