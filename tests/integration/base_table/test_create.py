"""Enabling MemWAL on a real table."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.base_table.commit.key import check_key, define_key
from memwal_core.errors import ConflictError, InvalidRequestError, MemwalError
from memwal_core.region.spec import RegionSpec, bucket_spec
from memwal_core.table import Table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import PEOPLE, make_people_table, people


def _plain(uri: str, rows: pa.Table | None = None, options: dict[str, str] | None = None) -> BaseTable:
    lance.write_dataset(people(1, 2, 3) if rows is None else rows, uri, storage_options=options)
    return BaseTable.open(uri, storage_options=options)


@pytest.mark.req("IDX-02", "IDX-04")
def test_created_index_is_what_pylance_reads(place: Any) -> None:
    table = make_people_table(place.uri, rows=people(1, 2), buckets=8, storage_options=place.storage_options)

    seen = table.dataset().mem_wal_index_details()

    spec = {
        "spec_id": 1,
        "fields": [
            {
                "field_id": "id_bucket",
                "source_ids": [0],
                "transform": "bucket",
                "expression": None,
                "result_type": "int32",
                "parameters": {"num_buckets": "8", "hash": "murmur3_x86_32"},
            }
        ],
    }
    assert seen["sharding_specs"] == [spec]
    assert seen["maintained_indexes"] == []
    assert table.state().version == 2
    assert table.state().num_rows == 2


def test_pylance_merges_indexes_and_compacts_on_a_created_index(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"), rows=people(1, 2))
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")
    for number in range(3, 6):
        merge_natively(table, people(number))

    table.dataset().optimize.compact_files()
    table.dataset().optimize.optimize_indices()
    dataset = table.dataset()
    dataset.validate()

    assert dataset.count_rows("name = 'p4'") == 1
    parameters = table.state().require_details().region_specs[0].fields[0].parameters
    assert parameters == {"num_buckets": "4", "hash": "murmur3_x86_32"}


@pytest.mark.req("IDX-01")
def test_second_creation_fails_and_changes_nothing(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="already"):
        table.create_mem_wal_index()
    with pytest.raises(OSError, match="already initialized"):
        table.dataset().initialize_mem_wal(unsharded=True)
    assert table.state().version == 2


@pytest.mark.req("IDX-01")
def test_creation_after_pylances_own_fails(tmp_path: Path) -> None:
    table = _plain(str(tmp_path / "t"))
    table.dataset().initialize_mem_wal(unsharded=True)

    with pytest.raises(InvalidRequestError, match="already"):
        table.create_mem_wal_index()


@pytest.mark.req("IDX-01")
def test_pylance_initialising_an_older_version_conflicts_with_ours(tmp_path: Path) -> None:
    """Bug class 44: two first initialisers must not leave two indexes."""
    table = _plain(str(tmp_path / "t"))
    late = table.dataset()
    table.create_mem_wal_index()

    with pytest.raises(OSError, match="preempted by concurrent transaction"):
        late.initialize_mem_wal(unsharded=True)
    assert [index.name for index in table.indexes()] == ["__lance_mem_wal"]


def test_table_with_a_blob_column_is_refused(tmp_path: Path) -> None:
    """Bug class 33: rows of such a table would be lost silently, or their merge fail for ever."""
    schema = PEOPLE.append(pa.field("photo", pa.large_binary(), metadata={"lance-encoding:blob": "true"}))
    rows = people(1).append_column(schema.field("photo"), [pa.array([b"x"], pa.large_binary())])
    lance.write_dataset(rows, str(tmp_path / "t"))
    table = BaseTable.open(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError, match="blob") as refused:
        table.create_mem_wal_index()

    assert refused.value.facts == {"columns": ["photo"]}
    assert table.state().version == 1


@pytest.mark.parametrize("name", ["", "*", "my `name`", "_rowid", "_rowaddr", "_rowoffset", "_tombstone"])
def test_columns_that_lance_would_not_read_back_by_their_names_are_refused(tmp_path: Path, name: str) -> None:
    schema = PEOPLE.append(pa.field(name, pa.int64()))
    with pytest.raises(InvalidRequestError, match="cannot read these columns back") as refused:
        Table.create(str(tmp_path / "new"), schema, key="id")
    assert refused.value.facts["columns"] == [name]
    assert not (tmp_path / "new").exists()

    table = BaseTable.open(lance.write_dataset(PEOPLE.empty_table(), str(tmp_path / "t")).uri)
    table.create_mem_wal_index([])
    lance.dataset(table.uri).add_columns(pa.field(name, pa.int64()))
    with pytest.raises(InvalidRequestError, match="cannot read these columns back"):
        Table.open(table.uri).writer()


@pytest.mark.req("IDX-01")
def test_racing_creators_make_one_index(place: Any) -> None:
    """Bug class 44: of several creators exactly one wins, and the others are told so."""
    first = _plain(place.uri, options=dict(place.storage_options))
    count = 6
    start = threading.Barrier(count)

    def create(number: int) -> int | str:
        table = BaseTable.open(place.uri, storage_options=place.storage_options)
        start.wait()
        try:
            table.create_mem_wal_index([RegionSpec(number, ())])
        except MemwalError as error:
            return error.what
        return number

    with ThreadPoolExecutor(count) as pool:
        outcomes = list(pool.map(create, range(1, count + 1)))

    winners = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert len(winners) == 1
    assert set(outcomes) - set(winners) == {"the table has a MemWAL index already"}
    assert [spec.spec_id for spec in first.state().require_details().region_specs] == winners
    assert first.state().version == 2


@pytest.mark.req("IDX-34", "IDX-35")
def test_maintained_index_must_exist_and_not_be_the_primary_keys(tmp_path: Path) -> None:
    table = _plain(str(tmp_path / "t"))
    table.dataset().create_scalar_index("id", "BTREE", name="key_idx")
    table.dataset().create_scalar_index("name", "BTREE", name="name_idx")

    with pytest.raises(InvalidRequestError, match="no such index"):
        table.create_mem_wal_index(maintained_indexes=["absent"])
    with pytest.raises(InvalidRequestError, match="must not be listed"):
        table.create_mem_wal_index(maintained_indexes=["key_idx"])
    state = table.create_mem_wal_index(maintained_indexes=["name_idx"])

    assert state.require_details().maintained_indexes == ("name_idx",)
    assert table.dataset().mem_wal_index_details()["maintained_indexes"] == ["name_idx"]


def _with_vectors(uri: str) -> BaseTable:
    numbers = np.random.default_rng(1).random(256 * 8).astype("float32")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 8)
    rows = people(*range(256)).append_column("vec", vectors)
    return _plain(uri, rows.cast(pa.schema([*PEOPLE, pa.field("vec", vectors.type)])))


@pytest.mark.req("IDX-37")
def test_vector_column_without_ivf_index_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        _with_vectors(str(tmp_path / "t")).create_mem_wal_index()

    assert [record.args for record in caplog.records] == [(["vec"],)]


def test_vector_column_without_rows_is_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A table that was just made was warned of, although no index can be created without rows."""
    schema = pa.schema([("id", pa.int64()), ("vec", pa.list_(pa.float32(), 8))])
    with caplog.at_level(logging.WARNING):
        Table.create(str(tmp_path / "t"), schema, key="id")

    assert caplog.records == []


@pytest.mark.req("IDX-37")
def test_vector_column_with_ivf_index_is_not_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = _with_vectors(str(tmp_path / "t"))
    table.dataset().create_index("vec", "IVF_PQ", name="vec_idx", num_partitions=2, num_sub_vectors=2)

    with caplog.at_level(logging.WARNING):
        table.create_mem_wal_index(maintained_indexes=["vec_idx"])

    assert caplog.records == []


def test_invalid_spec_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = _plain(str(tmp_path / "t"))

    with pytest.raises(InvalidRequestError):
        table.create_mem_wal_index([bucket_spec(0, "id", table.state().field_ids, 4)])
    assert table.state().version == 1
    assert sorted(path.name for path in (tmp_path / "t").iterdir()) == ["_transactions", "_versions", "data"]


@pytest.mark.parametrize("nullable", [False, True])
def test_key_is_not_defined_over_rows_that_came_after_its_check(tmp_path: Path, *, nullable: bool) -> None:
    """It was, with a conflict, and whoever tried again was told that the table has its key: two rows had the same."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=nullable)])
    uri = str(tmp_path / "table")
    lance.write_dataset(pa.table({"id": [1, 2]}, schema=schema), uri)
    table = BaseTable.open(uri)
    checked = check_key(table, ["id"])
    lance.dataset(uri).insert(pa.table({"id": [1]}, schema=schema))

    with pytest.raises(ConflictError):
        define_key(table, checked)

    assert not table.state().primary_key.columns
    with pytest.raises(InvalidRequestError, match="several rows have the same key"):
        check_key(table, ["id"])
