"""When a MemTable is full."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from memwal_core.memtable import MemTable, memtable_schema, with_tombstones
from memwal_core.settings import WriterSettings
from memwal_core.writer import MemoryBudget, RotationReason
from memwal_core.writer.flushing.rotation import reason_for_incoming, reason_without_incoming

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BASE = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SCHEMA = memtable_schema(BASE, ["id"])


def _memtable(rows: int) -> MemTable:
    memtable = MemTable(1, SCHEMA, 0, NOW)
    if rows:
        memtable.add(with_tombstones(pa.table({"id": list(range(rows))}, schema=BASE), SCHEMA, deleted=False))
    return memtable


@pytest.mark.req("MEM-16", "D-21")
def test_exactly_the_byte_limit_stays_and_one_byte_more_rotates() -> None:
    memtable = _memtable(10)
    settings = WriterSettings(max_memtable_bytes=memtable.size_bytes + 100)
    assert reason_for_incoming(memtable, 1, 100, NOW, settings) is None
    assert reason_for_incoming(memtable, 1, 101, NOW, settings) is RotationReason.BYTES


@pytest.mark.req("MEM-17")
def test_exactly_the_row_limit_stays_and_one_row_more_rotates() -> None:
    settings = WriterSettings(max_memtable_rows=12)
    assert reason_for_incoming(_memtable(10), 2, 1, NOW, settings) is None
    assert reason_for_incoming(_memtable(10), 3, 1, NOW, settings) is RotationReason.ROWS


@pytest.mark.req("MEM-17")
def test_age_counts_with_rows_only() -> None:
    settings = WriterSettings(max_memtable_age_s=60)
    old = NOW + timedelta(seconds=60)
    assert reason_without_incoming(_memtable(1), old - timedelta(seconds=1), settings) is None
    assert reason_without_incoming(_memtable(1), old, settings) is RotationReason.AGE
    assert reason_without_incoming(_memtable(0), old, settings) is None


@pytest.mark.req("MEM-17")
def test_a_memtable_does_not_outlive_a_clock_that_was_set_back() -> None:
    settings = WriterSettings(max_memtable_age_s=60)
    assert reason_without_incoming(_memtable(1), NOW - timedelta(days=1), settings) is RotationReason.AGE
    assert reason_without_incoming(_memtable(1), NOW, settings) is None


@pytest.mark.req("MEM-19")
def test_an_empty_memtable_takes_any_batch() -> None:
    assert reason_for_incoming(_memtable(0), 10**9, 10**12, NOW, WriterSettings()) is None


class _Writer:
    def __init__(self, size: int, *, can_rotate: bool = True) -> None:
        self.size = size
        self.can_rotate = can_rotate
        self.asked = 0

    def buffered_bytes(self) -> int:
        return self.size

    def request_rotation(self) -> bool:
        self.asked += 1
        return self.can_rotate


@pytest.mark.req("MEM-17")
def test_the_budget_asks_the_largest_writer_and_only_above_the_limit() -> None:
    budget = MemoryBudget(100)
    writers = [_Writer(40), _Writer(60)]
    for writer in writers:
        budget.join(writer)
    budget.relieve()
    assert [writer.asked for writer in writers] == [0, 0]
    writers[0].size = 41
    budget.relieve()
    assert [writer.asked for writer in writers] == [0, 1]


@pytest.mark.req("MEM-17")
def test_the_budget_asks_the_next_writer_when_the_largest_cannot_rotate() -> None:
    budget = MemoryBudget(100)
    writers = [_Writer(90, can_rotate=False), _Writer(20), _Writer(10)]
    for writer in writers:
        budget.join(writer)
    budget.relieve()
    assert [writer.asked for writer in writers] == [1, 1, 0]


@pytest.mark.req("MEM-17")
def test_the_budget_asks_no_writer_that_has_nothing() -> None:
    """Its next put became a generation of its own."""
    budget = MemoryBudget(100)
    writers = [_Writer(120, can_rotate=False), _Writer(0)]
    for writer in writers:
        budget.join(writer)
    budget.relieve()
    assert [writer.asked for writer in writers] == [1, 0]
