"""A batch is stored whole or not at all, in all of its regions, whatever types it has."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.base_table import BaseTable
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.native.casting import cast
from memwal_core.region.spec import bucket_spec
from memwal_core.settings import Settings, StorageSettings, WriterSettings
from memwal_core.storage.limits import MAX_ENTRY_ROWS_BYTES
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from memwal_core.writer.log import group_commit
from testkit.tables.people import PRIMARY_KEY_METADATA, make_people_table, people

FAST = Settings(storage=StorageSettings(fsync=False, retry_wait_s=0))
NESTED = pa.struct([("in", pa.struct([("v", pa.int32()), ("t", pa.string())]))])
KEY = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)


def _table(uri: str, kind: pa.DataType, version: str = "2.2") -> BaseTable:
    lance.write_dataset(pa.schema([KEY, pa.field("n", kind)]).empty_table(), uri, data_storage_version=version)
    base = BaseTable.open(uri, settings=FAST)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 4)])
    return base


def _stored(uri: str) -> list[Path]:
    return list(Path(uri).glob("_mem_wal/*/wal/*"))


def test_s8_structs_in_structs_reach_several_regions(tmp_path: Path) -> None:
    """Lance panicked at the slice of the second region, when the first had its rows."""
    uri = str(tmp_path / "t")
    values = [
        None if key % 5 == 0 else {"in": None if key % 3 == 0 else {"v": key, "t": str(key)}} for key in range(40)
    ]
    rows = pa.table({"id": pa.array(range(40), pa.int64()), "n": pa.array(values, NESTED)})
    with TableWriter.open(_table(uri, NESTED).with_settings(FAST)) as writer:
        assert len(writer.put(rows.slice(3, 30)).regions) == 4
        writer.flush()
    assert Table.open(uri, settings=FAST).scan().to_arrow().sort_by("id").to_pylist() == rows.slice(3, 30).to_pylist()


@pytest.mark.parametrize("codec", ["lance", "arrow"])
def test_json_of_a_writer_that_is_gone_is_replayed_read_and_merged(
    tmp_path: Path, codec: Literal["lance", "arrow"]
) -> None:
    """Lance's reader of files returned it in the form in which it stores it, which fits no column of the table."""
    uri, settings = str(tmp_path / "t"), Settings(writer=WriterSettings(new_region_codec=codec))
    schema = pa.schema([KEY, pa.field("n", pa.json_())])
    texts = ['{"a":[1,null,"é"]}', None, "2"]
    json = pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts))
    rows = pa.Table.from_arrays([pa.array([1, 2, 3]), json], schema=schema)
    table = Table.create(uri, schema, key="id", settings=settings)
    with table.writer() as writer:
        writer.put(rows)
    assert table.to_arrow().sort_by("id").to_pylist() == rows.to_pylist()

    with table.writer() as writer:
        writer.put(rows.slice(2))
        writer.flush()
    assert Table.open(uri).to_arrow().sort_by("id").to_pylist() == rows.to_pylist()
    assert table.run(MergeRequest()).outcome is JobOutcome.DONE
    assert lance.dataset(uri).to_table().sort_by("id").to_pylist() == rows.to_pylist()


def _categories(first: int, kind: pa.DataType) -> pa.Table:
    texts = pa.array([f"text {first + number}" for number in range(100)]).dictionary_encode()
    return pa.table({"id": list(range(first, first + 100)), "n": cast(texts, kind)})


NARROW = pa.dictionary(pa.int8(), pa.string())


def test_a_file_of_lance_cannot_hold_more_values_than_the_indices_of_a_dictionary_number(tmp_path: Path) -> None:
    """Why such columns are refused: each batch fits, and Lance reports no error."""
    path = str(tmp_path / "crowded.lance")
    with LanceFileWriter(path, _categories(0, NARROW).schema, version="2.2") as writer:
        writer.write_batch(_categories(0, NARROW).to_batches()[0])
        writer.write_batch(_categories(100, NARROW).to_batches()[0])
    with pytest.raises(pa.ArrowInvalid, match="dictionary indices use 32 bits"):
        LanceFileReader(path).read_all().to_table()


@pytest.mark.parametrize(
    "kind", [NARROW, pa.list_(NARROW), pa.struct([("in", NARROW)]), pa.dictionary(pa.uint16(), pa.string())]
)
def test_dictionaries_whose_values_can_outgrow_a_file_are_refused(tmp_path: Path, kind: pa.DataType) -> None:
    """Buffered puts wrote WAL entries that nobody could read, and durable ones could be neither flushed nor merged."""
    uri = str(tmp_path / "t")
    schema = pa.schema([KEY, pa.field("n", kind)])
    rows = pa.Table.from_arrays([pa.array([1]), pa.nulls(1, kind)], schema=schema)
    with TableWriter.open(_table(uri, kind).with_settings(FAST)) as writer:
        with pytest.raises(InvalidRequestError, match="files that nobody can read"):
            writer.put(rows)
        assert _stored(uri) == []
        writer.delete(rows.select(["id"]))


@pytest.mark.parametrize("codec", ["lance", "arrow"])
@pytest.mark.parametrize("is_durable", [True, False])
def test_dictionaries_of_many_batches_become_one(
    tmp_path: Path, codec: Literal["lance", "arrow"], is_durable: bool
) -> None:
    uri = str(tmp_path / "t")
    settings = Settings(writer=WriterSettings(new_region_codec=codec, durable_write=is_durable))
    batches = [_categories(first, pa.dictionary(pa.int32(), pa.string())) for first in range(0, 400, 100)]
    table = Table.create(uri, batches[0].schema, key="id", settings=settings)
    expected = [row for batch in batches for row in batch.to_pylist()]
    with table.writer() as writer:
        for batch in batches:
            writer.put(batch)
        assert table.lookup(pa.table({"id": [5, 399]})).num_rows == 2
        writer.flush()
    table.run(MergeRequest())
    assert lance.dataset(uri).to_table().sort_by("id").to_pylist() == expected


def test_s8_a_row_that_one_region_cannot_store_keeps_all_regions_empty(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    values = [None if key == 17 else {"in": {"v": key, "t": "x"}} for key in range(40)]
    rows = pa.table({"id": pa.array(range(40), pa.int64()), "n": pa.array(values, NESTED)})
    with TableWriter.open(_table(uri, NESTED, "2.0").with_settings(FAST)) as writer:
        with pytest.raises(InvalidRequestError) as caught:
            writer.put(rows)
        assert _stored(uri) == []
        assert "does not encode struct validity" in str(caught.value.facts["reason"])
        assert len(writer.put(rows.slice(0, 17)).regions) == 4  # The writer goes on.
        writer.flush()
    assert Table.open(uri, settings=FAST).scan().count() == 17


UUIDS = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)], pa.binary(16)))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[{"v": 1}, {"v": 2}]], pa.list_(pa.struct([("v", pa.int32())]), 2)),
        pa.array([None], pa.struct([])),
        pa.StructArray.from_arrays([UUIDS], names=["u"]),
    ],
    ids=["another number of rows", "a record where NULL was", "pyarrow cannot make them"],
)
def test_s8_a_type_that_lance_cannot_read_again_is_refused_before_a_row_is_written(
    tmp_path: Path, values: pa.Array
) -> None:
    """Lance 14 writes such values, and rows of them were acknowledged and not found again."""
    uri = str(tmp_path / "t")
    rows = pa.Table.from_arrays([pa.array([1], pa.int64()), values], schema=pa.schema([KEY, ("n", values.type)]))
    base = Table.create(uri, rows.schema, key="id").base
    with TableWriter.open(base.with_settings(FAST)) as writer, pytest.raises(InvalidRequestError) as caught:
        writer.put(rows)
    assert caught.value.facts["columns"] == ["n"]
    assert _stored(uri) == []


def test_s8_a_batch_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    """Offsets behind the end of the values make Arrow read foreign memory."""
    uri = str(tmp_path / "t")
    offsets = pa.array([0, 200, 2], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "n": broken})
    with TableWriter.open(_table(uri, pa.string()).with_settings(FAST)) as writer, pytest.raises(InvalidRequestError):
        writer.put(rows)
    assert _stored(uri) == []


def test_rows_that_no_reader_would_fetch_again_are_refused(tmp_path: Path) -> None:
    """An entry of more than ``MAX_OBJECT_BYTES`` was acknowledged, and its region could not be opened again."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.schema([KEY, pa.field("n", pa.binary())]).empty_table(), uri)
    base = BaseTable.open(uri, settings=FAST)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 4)])
    value = pa.array([bytes(MAX_ENTRY_ROWS_BYTES // 64)])
    # The same memory again and again: as many bytes as the limit, and each key is one more.
    rows = pa.table({"id": [1] * 64, "n": pa.chunked_array([value] * 64)})
    with TableWriter.open(base) as writer:
        with pytest.raises(InvalidRequestError, match="larger than one WAL entry may be") as caught:
            writer.put(rows)
        assert caught.value.facts["max_bytes"] == MAX_ENTRY_ROWS_BYTES
        writer.put(rows.slice(0, 1))
    assert len(_stored(uri)) == 1


@pytest.mark.parametrize("limit", [1, 2**20])
def test_rows_that_wait_together_go_to_entries_that_can_be_fetched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """All rows of a MemTable that waited became one entry, however many they were."""
    monkeypatch.setattr(group_commit, "MAX_ENTRY_ROWS_BYTES", limit)
    uri = str(tmp_path / "t")
    settings = Settings(
        storage=FAST.storage,
        writer=WriterSettings(durable_write=False, background_flush=False, wal_flush_interval_s=3600),
    )
    base = make_people_table(uri, buckets=1, settings=settings)
    with TableWriter.open(base) as writer:
        for number in range(5):
            writer.put(people(number, 9, name=str(number)))
    assert len(_stored(uri)) == (5 if limit == 1 else 1)
    with TableWriter.open(base) as writer:
        writer.put(people(10))
        writer.flush()
    names = Table.open(uri, settings=settings).lookup(pa.table({"id": [0, 9]}), ["name"]).column("name").to_pylist()
    assert names == ["0", "4"]


def test_what_is_stored_follows_the_rows_and_not_their_dictionary(tmp_path: Path) -> None:
    """Each put and each region stored, and kept in memory, all values of the batch that its rows were a slice of."""
    uri, kind = str(tmp_path / "t"), pa.dictionary(pa.int32(), pa.string())
    values = pa.array([f"{number * 7919 % 100_003:0100d}" for number in range(20_000)])
    rows = pa.table({"id": range(64), "n": pa.DictionaryArray.from_arrays(pa.array(range(64), pa.int32()), values)})
    with TableWriter.open(_table(uri, kind).with_settings(FAST)) as writer:
        writer.put(rows)
        for number in range(4):
            writer.put(rows.slice(number, 1))
        held = sum(region.memtable.size_bytes for region in writer.writers.values())
        writer.flush()
    assert held < values.nbytes / 10
    assert sum(path.stat().st_size for path in _stored(uri)) < values.nbytes / 10
    found = Table.open(uri, settings=FAST).to_arrow().sort_by("id").to_pylist()
    assert found == rows.to_pylist()
