"""Regions that pylance's own writer and ours write in turn."""

import random
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from memwal_core.errors import CorruptionError, FencedError
from memwal_core.format.paths import wal_directory, wal_entry_path
from memwal_core.ids import IdSource
from memwal_core.region import ManifestStore, RegionStatus
from memwal_core.table import Table
from memwal_core.wal import ArrowCodec
from memwal_core.writer import RegionWriter
from testkit.tables.native_regions import native_region_id, native_scan
from testkit.tables.people import make_people_table, people
from testkit.tables.regions import create_region, flushed_rows, writer_settings

SETTINGS = writer_settings()
REGION = native_region_id(1)
ROUNDS = 50
KEYS = 30


@pytest.fixture
def table(tmp_path: Path):
    return make_people_table(str(tmp_path / "people.lance"), rows=people(*range(5), name="base"), settings=SETTINGS)


def _native(table):
    return lance.dataset(table.uri).mem_wal_writer(str(REGION), max_wal_flush_interval_ms=1)


def _ours(table) -> RegionWriter:
    return RegionWriter.open(table, REGION)


def _manifest(table):
    return ManifestStore(table.store, IdSource()).load(REGION)


def _is_read_as_fence(table, wal_id: int) -> bool:
    return ArrowCodec({}).read(table.store, REGION, wal_id).is_fence


def _shown(table) -> dict[int, str]:
    rows = native_scan(table.uri, [_manifest(table)], ["id", "name"], "id")
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def _names(memtable) -> list[tuple[int, str | None]]:
    rows = memtable.to_table(["id", "name"])
    return list(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


@pytest.mark.req("FMT-20", "MEM-42")
def test_what_pylance_left_in_the_wal_is_replayed_and_flushed_by_us(table) -> None:
    crashed = _native(table)
    crashed.put(people(1, 2, name="native"))
    crashed.delete(pa.table({"id": [2]}))
    with _ours(table) as writer:
        assert _names(writer.memtable) == [(1, "native"), (2, "native"), (2, None)]
        writer.put(people(3, name="ours"))
        record = writer.flush()
    assert flushed_rows(table, REGION, record) == {1: "native", 2: None, 3: "ours"}
    assert _manifest(table).status is RegionStatus.ACTIVE
    assert _shown(table) == {0: "base", 1: "native", 3: "ours", 4: "base"}
    with pytest.raises(OSError, match="fenced"):
        crashed.put(people(9))


def test_what_we_left_in_the_wal_of_a_table_with_metadata_is_replayed_by_pylance(table) -> None:
    """Its schema has some wherever it was made from a data frame of pandas."""
    lance.dataset(table.uri).update_schema_metadata({"pandas": "{}", "fence_sentinel": "false"})
    _native(table).close()
    crashed = _ours(table)
    position = crashed.put(people(1, name="ours")).wal_id
    crashed.close()
    assert [_is_read_as_fence(table, each) for each in (position - 1, position)] == [True, False]

    lance.dataset(table.uri).update_schema_metadata({"fence_sentinel": None})
    with _native(table) as native:
        native.put(people(2, name="native").replace_schema_metadata({"pandas": "{}"}))
    with _ours(table) as last:
        last.flush()
    assert _shown(table).items() >= {1: "ours", 2: "native"}.items()


def test_what_we_left_in_the_wal_is_replayed_by_pylance(table) -> None:
    _native(table).close()
    crashed = _ours(table)
    crashed.put(people(1, 2, name="ours"))
    crashed.delete(pa.table({"id": [2]}))
    with _native(table) as native:
        native.put(people(3, name="native"))
    assert _shown(table) == {0: "base", 1: "ours", 3: "native", 4: "base"}
    with pytest.raises(FencedError):
        crashed.put(people(9))


@pytest.mark.parametrize(
    "wrap",
    [lambda values: values, lambda values: pa.StructArray.from_arrays([values], names=["inner"])],
    ids=["dictionary", "dictionary in a struct"],
)
def test_dictionaries_are_handed_over_in_both_directions(tmp_path: Path, wrap: Callable[[pa.Array], pa.Array]) -> None:
    def rows(first: int) -> pa.Table:
        kinds = pa.array([f"kind {first}", None, f"kind {first}"]).dictionary_encode()
        return pa.table({"id": [first, first + 1, first + 2], "kind": wrap(kinds)})

    table = Table.create(str(tmp_path / "kinds.lance"), rows(0).schema, key="id").base
    with _native(table) as native:
        native.put(rows(0))
    with _ours(table) as ours:
        ours.put(rows(3))
        ours.put(rows(6))
    with _native(table) as native:
        native.put(rows(9))
    with _ours(table) as ours:
        ours.delete(pa.table({"id": [1]}))
        ours.flush()

    expected = [row for first in (0, 3, 6, 9) for row in rows(first).to_pylist() if row["id"] != 1]
    assert Table.open(table.uri).to_arrow().sort_by("id").to_pylist() == expected


@pytest.mark.req("WRT-84", "WRT-86")
def test_fifty_handovers_in_both_directions_lose_no_acknowledged_row(table) -> None:
    rng = random.Random(50)
    expected = dict.fromkeys(range(5), "base")
    abandoned = []
    _native(table).close()
    for round_number in range(ROUNDS):
        writer = _ours(table) if rng.random() < 0.5 else _native(table)
        abandoned.append(writer)
        for step in range(rng.randint(1, 3)):
            keys = rng.sample(range(KEYS), rng.randint(1, 4))
            name = f"r{round_number}.{step}"
            if rng.random() < 0.2:
                writer.delete(pa.table({"id": keys}))
                for key in keys:
                    expected.pop(key, None)
            else:
                writer.put(people(*keys, name=name))
                expected |= dict.fromkeys(keys, name)
            if isinstance(writer, RegionWriter) and rng.random() < 0.2:
                writer.flush()
        if rng.random() < 0.3:
            writer.close()
    with _ours(table) as last:
        last.flush()
    assert _shown(table) == dict(sorted(expected.items()))
    assert len(_manifest(table).flushed_generations) > ROUNDS / 10


def test_our_entries_note_field_ids_and_epoch_as_pylance_does_and_the_generation_apart(table) -> None:
    _native(table).close()
    writer = _ours(table)
    receipt = writer.put(people(1))
    data = table.store.get(wal_entry_path(REGION, receipt.wal_id, ".arrow"))
    entry = pa.ipc.open_stream(data)
    schema = entry.schema
    assert schema.metadata == {b"writer_epoch": str(writer.writer_epoch).encode()}
    assert entry.read_next_batch_with_custom_metadata().custom_metadata[b"generation"] == b"1"
    ids = {field.name: (field.metadata or {}).get(b"lance:field_id") for field in schema}
    assert ids == {"id": b"0", "name": b"1", "score": b"2", "_tombstone": None}


@pytest.mark.req("WRT-42", "G-05")
def test_a_late_entry_of_pylances_fenced_writer_is_kept(table) -> None:
    native = _native(table)
    native.put(people(1, name="native"))
    writer = _ours(table)
    fence = writer.stats().last_wal_id
    entry = ArrowCodec({}).read(table.store, REGION, fence)
    assert (entry.is_fence, entry.rows.num_rows, entry.writer_epoch) == (True, 0, writer.writer_epoch)


@pytest.mark.req("D-16", "FMT-05")
@pytest.mark.parametrize("status", RegionStatus)
def test_entries_of_both_codecs_in_one_wal_are_corruption(table, status: RegionStatus) -> None:
    region_id = create_region(table, status)
    RegionWriter.open(table, region_id).put(people(1))
    foreign = ".arrow" if status is RegionStatus.SEALED else ".lance"
    tail = len(list(table.store.list_objects(wal_directory(region_id))))
    table.store.put_if_absent(wal_entry_path(region_id, tail + 1, foreign), b"x")
    with pytest.raises(CorruptionError) as caught:
        RegionWriter.open(table, region_id)
    assert (caught.value.facts["found"], caught.value.facts["wal_id"]) == (foreign, tail + 1)
