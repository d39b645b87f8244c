"""A lookup reads the manifests of the regions that may hold its keys, and no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import DamagedError
from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.reader.text.search import TextQuery
from memwal_core.region import RegionStatus
from memwal_core.region.spec import RegionRouter, bucket_spec, encode_region_value
from memwal_core.settings import Settings, StorageSettings
from memwal_core.storage import open_store
from memwal_core.table import Table
from memwal_core.writer import RegionWriter
from memwal_core.writer.table_writer import TableWriter
from testkit.faults.faulty_store import FaultyStore
from testkit.tables.native_regions import Put, native_region_id, write_native_generations
from testkit.tables.people import make_people_table, people
from testkit.tables.readable import keys_of

UNSYNCED = Settings(storage=StorageSettings(fsync=False))
REGIONS = 16


def _write(uri: str, *ids: int, name: str) -> dict[int, RegionId]:
    """Write and flush rows; return the region of each key."""
    with TableWriter.open(BaseTable.open(uri, settings=UNSYNCED)) as writer:
        writer.put(people(*ids, name=name))
        writer.flush()
        regions = {value: each.region_id for value, each in writer.writers.items()}
    (spec,) = BaseTable.open(uri).require_writable().region_specs
    router = RegionRouter(spec, BaseTable.open(uri).state().field_ids)
    return {key: regions[value] for key in ids for value in router.values(keys_of(key))}


@pytest.fixture
def uri(tmp_path: Path) -> str:
    where = str(tmp_path / "t")
    make_people_table(where, rows=people(*range(100)), buckets=REGIONS, settings=UNSYNCED)
    return where


def _watched(uri: str) -> tuple[Table, FaultyStore]:
    store = FaultyStore(open_store(uri, settings=UNSYNCED.storage))
    return Table(OpenTable.of(BaseTable.open(uri, store=store, settings=UNSYNCED))), store


def _names(table: Table, *ids: int) -> list[str]:
    names: list[str] = table.lookup(keys_of(*ids), ["name"]).column("name").to_pylist()
    return names


def test_p4_a_lookup_costs_the_same_at_any_number_of_regions(uri: str) -> None:
    """It read all manifests: 56 requests of ours at 16 regions, then 51."""
    regions = _write(uri, *range(80), name="new")
    assert len(set(regions.values())) == REGIONS
    table, store = _watched(uri)

    assert _names(table, 7) == ["new"]
    assert len(store.calls) <= 12
    for key in (7, 90, 7):
        store.calls.clear()
        _names(table, key)
        read = {call.path.split("/")[1] for call in store.calls if "/manifest/" in call.path}
        assert len(read) == 1
        assert len(store.calls) <= 6  # Once, the filter of its flushed MemTable.
    assert len(store.calls) <= 5


def test_a_region_that_appears_between_two_lookups_is_read(uri: str) -> None:
    _write(uri, 1, name="first")
    table, _ = _watched(uri)
    assert _names(table, 1, 2, 3) == ["first", "p2", "p3"]

    _write(uri, 2, 3, 1, name="second")
    assert _names(table, 1, 2, 3) == ["second"] * 3
    table.run(MergeRequest())
    assert _names(table, 3, 1) == ["second"] * 2


@pytest.mark.req("SPEC-12")
def test_rows_that_wait_are_found_after_the_column_that_decided_their_region_was_dropped(tmp_path: Path) -> None:
    """The keys were looked for in the region of NULL alone, and a text search gave another row's values, or failed."""
    schema = pa.schema([("id", pa.int64()), ("tenant", pa.string()), ("text", pa.string())])
    table = Table.create(str(tmp_path / "t"), schema, key=["id", "tenant"], regions=["tenant"])
    lance.dataset(table.uri).insert(pa.table({"id": [1, 2], "tenant": ["a", "b"], "text": ["old word", "old word"]}))
    lance.dataset(table.uri).create_scalar_index("text", "INVERTED")
    with table.writer() as writer:
        writer.put(pa.table({"id": [1, 3], "tenant": ["a", "b"], "text": ["new word", "new word"]}))
        writer.flush()
    lance.dataset(table.uri).drop_columns(["tenant"])

    for each in (Table.open(table.uri), table):
        found = each.lookup(keys_of(1, 2, 3), consistency="latest")
        assert found["text"].to_pylist() == ["new word", "old word", "new word"]
        texts = each.full_text_search(TextQuery("text", "word"), consistency="latest")
        assert sorted(texts["id"].to_pylist()) == [1, 2, 3]


def test_regions_without_a_mark_are_always_read(uri: str) -> None:
    _write(uri, *range(20), name="ours")
    table, store = _watched(uri)
    assert _names(table, 1) == ["ours"]
    write_native_generations(uri, native_region_id(1), [[Put(people(50, name="theirs"))]])

    assert _names(table, 50) == ["theirs"]
    store.calls.clear()
    assert _names(table, 1) == ["ours"]
    assert {str(native_region_id(1))} < {call.path.split("/")[1] for call in store.calls if "/manifest/" in call.path}


@pytest.mark.parametrize("warm", [False, True])
def test_a_vanished_region_stops_lookups_of_its_own_keys_alone(uri: str, warm: bool) -> None:
    regions = _write(uri, *range(20), name="new")
    other = next(key for key in regions if regions[key] != regions[1])
    table, _ = _watched(uri)
    if warm:
        assert _names(table, 1, other) == ["new"] * 2
    shutil.rmtree(Path(uri) / "_mem_wal" / str(regions[1]))

    assert _names(table, other) == ["new"]
    for keys in ((1,), (1, other)):
        with pytest.raises(DamagedError):
            _names(table, *keys)
    assert _names(table, other) == ["new"]


def test_a_spec_that_is_added_meanwhile_is_asked_too(uri: str) -> None:
    """The regions of a spec that the reader does not know yet may hold every key, until it does."""
    _write(uri, *range(20), name="one")
    table, _ = _watched(uri)
    assert _names(table, 1) == ["one"]
    spec = bucket_spec(2, "id", table.base.state().field_ids, 3)
    table.configuration.add_region_spec(spec)
    region = table.base.ids.region_id()
    values = encode_region_value(spec, (0,))
    table.opened.manifests.create(region, region_spec_id=2, region_field_values=values, status=RegionStatus.SEALED)
    with RegionWriter.open(table.base, region) as writer:
        writer.put(people(60, name="two"))
        writer.flush()

    assert table.lookup(keys_of(60, 1), ["name"], consistency="latest").column("name").to_pylist() == ["two", "one"]
