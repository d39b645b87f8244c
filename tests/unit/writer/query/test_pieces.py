"""The rows of a MemTable as small Lance tables: what keeping them up to date reads."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from memwal_core.memtable import Fragment, MemTable, StoredEntry, memtable_schema, with_tombstones
from memwal_core.writer.query.pieces import IndexedMemTable, SearchPiece

PUTS = 200
BASE = pa.schema([pa.field("id", pa.int64(), nullable=False)])
SCHEMA = memtable_schema(BASE, ["id"])


def _rows(*ids: int) -> pa.Table:
    return with_tombstones(pa.table({"id": list(ids)}, schema=BASE), SCHEMA, deleted=False)


def _ids(pieces: Sequence[SearchPiece]) -> list[int]:
    return [number for piece in pieces for number in piece.rows.column("id").to_pylist()]


def test_each_put_looks_at_its_own_fragment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each put compared all fragments before it, and so a MemTable cost the square of its puts."""
    looked: list[int] = []

    def fragments_from(self: MemTable, first: int) -> Sequence[Fragment]:
        looked.append(len(self._fragments) - first)
        return self._fragments[first:]

    monkeypatch.setattr(MemTable, "fragments_from", fragments_from)
    monkeypatch.setattr(MemTable, "fragments", property(lambda self: fragments_from(self, 0)))
    memtable = MemTable(1, SCHEMA, 0, datetime(2026, 1, 1, tzinfo=UTC))
    indexed = IndexedMemTable(memtable, (), {})
    assert indexed.refresh() == ()
    for number in range(PUTS):
        memtable.add(_rows(number))
        assert len(_ids(indexed.refresh())) == number + 1
    assert sum(looked) <= 2 * PUTS


def test_a_late_entry_before_rows_that_are_covered_takes_its_place() -> None:
    memtable = MemTable(1, SCHEMA, 0, datetime(2026, 1, 1, tzinfo=UTC))
    indexed = IndexedMemTable(memtable, (), {})
    memtable.add(_rows(2))
    assert _ids(indexed.refresh()) == [2]
    memtable.add_replayed(_rows(1), StoredEntry(1, 1, 5))
    assert _ids(indexed.refresh()) == [1, 2]
    memtable.add(_rows(3))
    assert _ids(indexed.refresh()) == [1, 2, 3]
