"""Mapping a flushed MemTable's columns to the base table by field id."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import pyarrow as pa
import pytest

from memwal_core.flushed.read import ColumnMapping, MergeTarget, SchemaMismatch, map_columns

BASE = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()), pa.field("n", pa.int32())])
TARGET = MergeTarget(BASE, {"id": 0, "name": 3, "n": 4}, ("id",))


@dataclass(frozen=True)
class Field:
    number: int
    text: str

    def id(self):
        return self.number

    def name(self):
        return self.text

    def children(self):
        return ()


def mapped(*columns: tuple[str, int, pa.DataType]) -> ColumnMapping | SchemaMismatch:
    schema = pa.schema([pa.field(name, kind) for name, _, kind in columns])
    return map_columns(TARGET, [Field(number, name) for name, number, _ in columns], schema)


def test_columns_match_by_id_whatever_their_name_and_order():
    found = mapped(
        ("n", 4, pa.int32()), ("id", 0, pa.int64()), ("old_name", 3, pa.string()), ("_tombstone", 5, pa.bool_())
    )
    assert found == ColumnMapping(
        {"id": "id", "name": "old_name", "n": "n"}, missing=(), renamed={3: "old_name"}, has_tombstones=True
    )


def test_column_added_after_the_flush_is_missing():
    found = mapped(("id", 0, pa.int64()), ("name", 3, pa.string()))
    assert found == ColumnMapping({"id": "id", "name": "name"}, missing=("n",), renamed={}, has_tombstones=False)


def test_not_null_column_added_after_the_flush_is_a_mismatch():
    strict = MergeTarget(BASE.set(2, pa.field("n", pa.int32(), nullable=False)), TARGET.field_ids, TARGET.key)
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    found = map_columns(strict, [Field(0, "id"), Field(3, "name")], schema)
    assert isinstance(found, SchemaMismatch)
    assert "NOT NULL column 'n' was added" in found.reason


def test_added_column_with_the_id_of_the_tombstone_mark_is_not_taken_for_it():
    found = mapped(("id", 0, pa.int64()), ("name", 3, pa.string()), ("_tombstone", 4, pa.bool_()))
    assert isinstance(found, ColumnMapping)
    assert found.missing == ("n",)


def test_dropped_column_is_left_out():
    found = mapped(("id", 0, pa.int64()), ("name", 3, pa.string()), ("n", 4, pa.int32()), ("gone", 1, pa.int32()))
    assert found == ColumnMapping({"id": "id", "name": "name", "n": "n"}, missing=(), renamed={}, has_tombstones=False)


def test_target_without_columns_keeps_the_others_in_order():
    assert TARGET.without(("name",)).schema.names == ["id", "n"]
    assert TARGET.without(()) is TARGET


@pytest.mark.parametrize(("kind", "fits"), [(pa.large_string(), True), (pa.string(), True), (pa.binary(), False)])
def test_type_fits_only_if_every_value_survives(kind, fits):
    found = mapped(("id", 0, pa.int64()), ("name", 3, kind), ("n", 4, pa.int32()))
    assert isinstance(found, ColumnMapping) is fits


def test_target_reaches_another_process_whole():
    restored = pickle.loads(pickle.dumps(TARGET))
    assert restored.schema.equals(BASE, check_metadata=True)
    assert (restored.field_ids, restored.key) == (TARGET.field_ids, ("id",))
