from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memwal_core.errors import InternalError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.memtable import MemTable, StoredEntry, memtable_schema, with_tombstones

BASE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string(), nullable=False)])
SCHEMA = memtable_schema(BASE, ["id"])


def _rows(*ids: int) -> pa.Table:
    plain = pa.table({"id": list(ids), "v": [f"v{i}" for i in ids]}, schema=BASE)
    return with_tombstones(plain, SCHEMA, deleted=False)


def _memtable(replay_after: int = 10) -> MemTable:
    return MemTable(3, SCHEMA, replay_after, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.req("D-20", "G-09")
def test_memtable_schema_adds_the_tombstone_and_loosens_only_values() -> None:
    assert SCHEMA.names == ["id", "v", TOMBSTONE_COLUMN]
    assert [field.nullable for field in SCHEMA] == [False, True, False]


@pytest.mark.req("WRT-28", "WRT-29", "WRT-55", "WRT-56")
def test_each_write_is_a_readable_pending_fragment() -> None:
    memtable = _memtable()
    added = [memtable.add(_rows(1)), memtable.add(_rows(2, 3))]
    assert list(memtable.fragments) == added
    assert memtable.to_table(["id"]).column("id").to_pylist() == [1, 2, 3]
    assert len(memtable.pending()) == 2
    assert memtable.wal_mapping() == {}


@pytest.mark.req("WRT-39", "WRT-40", "WRT-57", "WRT-58")
def test_fragments_of_one_entry_get_its_relative_id_and_their_positions() -> None:
    memtable = _memtable(replay_after=10)
    memtable.add(_rows(1))
    memtable.mark_flushed(1, wal_id=11, size_bytes=100)
    memtable.add(_rows(2, 3))
    memtable.add(_rows(4))
    memtable.mark_flushed(2, wal_id=12, size_bytes=200)
    assert memtable.wal_mapping() == {0: (1, 0), 1: (2, 0), 2: (2, 1)}
    assert [(e.wal_id, e.rows) for e in memtable.stored_entries()] == [(11, 1), (12, 3)]
    assert memtable.pending() == []


@pytest.mark.req("MEM-13")
def test_wal_bytes_sum_the_entries_that_hold_the_rows() -> None:
    memtable = _memtable()
    memtable.add_replayed(_rows(1), StoredEntry(11, 1, 70))
    memtable.add(_rows(2))
    memtable.mark_flushed(1, 12, 30)
    assert memtable.wal_bytes == 100


@pytest.mark.req("WRT-42")
def test_a_late_entry_is_ordered_before_pending_rows() -> None:
    memtable = _memtable(replay_after=0)
    memtable.add(_rows(5))
    memtable.add_replayed(_rows(4), StoredEntry(1, 1, 10))
    memtable.mark_flushed(1, 2, 10)
    assert memtable.to_table(["id"]).column("id").to_pylist() == [4, 5]
    assert memtable.wal_mapping() == {0: (1, 0), 1: (2, 0)}


@pytest.mark.req("WRT-64")
def test_an_entry_that_does_not_follow_is_refused() -> None:
    memtable = _memtable(replay_after=10)
    memtable.add(_rows(1))
    with pytest.raises(InternalError) as caught:
        memtable.mark_flushed(1, 13, 10)
    assert caught.value.facts["last_wal_id"] == 10
