"""MemTables in the order of their generations, and the WAL ranges that they own."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memwal_core.errors import InternalError
from memwal_core.memtable import MemTable, MemTableQueue, memtable_schema, with_tombstones
from memwal_core.region import FlushedGeneration

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BASE = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SCHEMA = memtable_schema(BASE, ["id"])


def _rows(*ids: int) -> pa.Table:
    return with_tombstones(pa.table({"id": list(ids)}, schema=BASE), SCHEMA, deleted=False)


def _queue(generation: int = 5, replay_after: int = 10) -> MemTableQueue:
    return MemTableQueue(MemTable(generation, SCHEMA, replay_after, NOW))


def _record(generation: int) -> FlushedGeneration:
    return FlushedGeneration(generation, f"0000000{generation}_gen_{generation}")


@pytest.mark.req("MEM-21", "WRT-74", "WRT-56")
def test_the_active_generation_is_the_oldest_plus_the_queue_length() -> None:
    queue = _queue(5)
    for _ in range(2):
        queue.active.add(_rows(1))
        queue.rotate(SCHEMA, NOW, 0.0)
    assert [memtable.generation for memtable in queue.all] == [5, 6, 7]
    assert queue.active.generation == 5 + len(queue.waiting)
    assert queue.active.fragments == ()


@pytest.mark.req("MEM-14", "WRT-56", "WRT-64")
def test_ranges_follow_each_other_and_open_only_when_the_one_before_is_final() -> None:
    queue = _queue(replay_after=10)
    queue.active.add(_rows(1))
    first = queue.rotate(SCHEMA, NOW, 0.0).memtable
    queue.active.add(_rows(2))
    second = queue.active
    assert second.replay_after_wal_id is None
    with pytest.raises(InternalError):
        second.mark_flushed(1, 11, 5)
    first.mark_flushed(1, 11, 5)
    queue.open_ranges()
    second.mark_flushed(1, 12, 5)
    assert [memtable.wal_mapping() for memtable in queue.all] == [{0: (1, 0)}, {0: (1, 0)}]


def test_rows_that_wait_for_the_wal_are_batched_by_generation() -> None:
    queue = _queue()
    queue.active.add(_rows(1))
    queue.active.add(_rows(2))
    queue.rotate(SCHEMA, NOW, 0.0)
    queue.active.add(_rows(3))
    batches = queue.unstored()
    assert [(memtable.generation, len(fragments)) for memtable, fragments in batches] == [(5, 2), (6, 1)]


@pytest.mark.req("MEM-22")
def test_only_the_oldest_may_leave() -> None:
    queue = _queue(1)
    queue.active.add(_rows(1))
    first = queue.rotate(SCHEMA, NOW, 0.0)
    queue.active.add(_rows(2))
    second = queue.rotate(SCHEMA, NOW, 0.0)
    with pytest.raises(InternalError) as caught:
        queue.release(second, _record(2))
    assert caught.value.facts["queued"] == [1, 2]
    queue.release(first, _record(1))
    queue.release(second, _record(2))
    assert (first.record, second.record) == (_record(1), _record(2))
    assert queue.oldest is None


@pytest.mark.req("MEM-20")
def test_a_frozen_memtable_refuses_rows_and_stays_readable() -> None:
    queue = _queue()
    queue.active.add(_rows(1))
    frozen = queue.rotate(SCHEMA, NOW, 0.0).memtable
    with pytest.raises(InternalError):
        frozen.add(_rows(2))
    assert frozen.to_table().column("id").to_pylist() == [1]
