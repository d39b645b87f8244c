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


@dataclass(frozen=True)
class Numbered:
    """A column with the ids of all fields inside, depth first."""

    number: int
    text: str
    below: tuple[int, ...]

    def id(self):
        return self.number

    def name(self):
        return self.text

    def children(self):
        return tuple(Field(each, "") for each in self.below)


def of(kind: pa.DataType, *ids: int) -> tuple[pa.DataType, tuple[int, ...]]:
    return kind, ids


def mapped_inside(wanted: tuple[pa.DataType, tuple[int, ...]], found: tuple[pa.DataType, tuple[int, ...]]):
    target = MergeTarget(pa.schema([pa.field("s", wanted[0])]), {"s": 1}, (), {"s": wanted[1]})
    return map_columns(target, [Numbered(1, "s", found[1])], pa.schema([pa.field("s", found[0])]))


X, Y = pa.field("x", pa.int64()), pa.field("y", pa.string())
ITEM = pa.field("item", pa.struct([X, Y]))
LIST, FIXED = pa.list_(ITEM), pa.list_(ITEM, 1)


def test_equal_fields_inside_change_no_value():
    found = mapped_inside(of(pa.struct([X, Y]), 2, 3), of(pa.struct([X, Y]), 2, 3))
    assert isinstance(found, ColumnMapping)
    assert found.is_direct
    values = pa.array([{"x": 1, "y": "a"}])
    assert found.reshape("s", values) is values


@pytest.mark.parametrize(
    ("wanted", "found", "value", "becomes"),
    [
        (of(pa.struct([Y]), 3), of(pa.struct([X, Y]), 2, 3), {"x": 1, "y": "a"}, {"y": "a"}),
        (of(pa.struct([Y, X]), 3, 5), of(pa.struct([Y]), 3), {"y": "a"}, {"y": "a", "x": None}),
        (of(pa.struct([X, Y]), 2, 5), of(pa.struct([X, Y]), 2, 3), {"x": 1, "y": "a"}, {"x": 1, "y": None}),
        (of(pa.struct([Y]), 5), of(pa.struct([X]), 2), {"x": 1}, {"y": None}),
        (of(LIST, 2, 3, 9), of(LIST, 2, 3, 4), [{"x": 1, "y": "a"}, None], [{"x": 1, "y": None}, None]),
        (of(FIXED, 2, 3, 9), of(FIXED, 2, 3, 4), [{"x": 1, "y": "a"}], [{"x": 1, "y": None}]),
        (
            of(pa.map_(pa.string(), ITEM.type), 2, 3, 4, 5, 9),
            of(pa.map_(pa.string(), ITEM.type), 2, 3, 4, 5, 6),
            [("k", {"x": 1, "y": "a"})],
            [("k", {"x": 1, "y": None})],
        ),
        (
            of(pa.struct([pa.field("y", pa.large_string())]), 3),
            of(pa.struct([X, Y]), 2, 3),
            {"x": 1, "y": "a"},
            {"y": "a"},
        ),
    ],
    ids=["dropped", "added", "made anew", "all of them", "in items", "in fixed lists", "in maps", "another form"],
)  # fmt: skip
def test_fields_inside_are_matched_by_id(wanted, found, value, becomes):
    mapping = mapped_inside(wanted, found)
    assert isinstance(mapping, ColumnMapping)
    assert not mapping.is_direct
    assert mapping.renamed == {}
    values = pa.array([None, value, None, value], found[0])
    for given in (values, values.slice(1), pa.chunked_array([values, values[:0]]), values[:0]):
        result = mapping.reshape("s", given)
        result.validate(full=True)
        assert result.type == wanted[0]
        assert result.to_pylist() == [each and becomes for each in given.to_pylist()]


def test_renamed_fields_inside_are_told_by_their_ids():
    found = mapped_inside(
        of(pa.struct([pa.field("y", X.type), pa.field("x", Y.type)]), 2, 3), of(pa.struct([X, Y]), 2, 3)
    )
    assert isinstance(found, ColumnMapping)
    assert found.renamed == {2: "x", 3: "y"}
    assert found.reshape("s", pa.array([{"x": 1, "y": "a"}])).to_pylist() == [{"y": 1, "x": "a"}]


NOT_NULL = pa.field("x", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("wanted", "found", "reason"),
    [
        (of(pa.struct([pa.field("x", pa.int32())]), 2), of(pa.struct([X]), 2), "column 's.x' is int32 in the base"),
        (of(pa.struct([Y, NOT_NULL]), 3, 5), of(pa.struct([Y]), 3), "NOT NULL field 's.x' was added"),
        (of(pa.struct([NOT_NULL]), 2), of(pa.struct([X]), 2), "'s.x' is NOT NULL in the base table and may be NULL"),
        (of(pa.list_(NOT_NULL), 2), of(pa.list_(X), 2), "'s.x' is NOT NULL in the base table and may be NULL"),
        (of(LIST, 7, 3, 4), of(LIST, 2, 3, 4), "'s.item' has the id 7 in the base table and 2 here"),
        (of(LIST, 2, 3, 4), of(ITEM.type, 3, 4), "column 's' is list"),
        (of(pa.large_list(ITEM), 2, 3, 4), of(LIST, 2, 3, 4), "column 's' is large_list"),
        (of(FIXED, 2, 3, 4), of(pa.list_(ITEM, 2), 2, 3, 4), "column 's' is fixed_size_list"),
        (of(pa.struct([X, Y]), 2, 3), of(pa.struct([X, Y]), 2), "column 's' is struct"),
        (of(pa.struct([ITEM]), 2, 3, 4), of(pa.struct([pa.field("item", X.type)]), 2), "column 's.item' is struct"),
    ],
    ids=["type", "added", "nullable", "items nullable", "items", "kind", "large", "size", "ids are lacking", "inside"],
)  # fmt: skip
def test_fields_inside_that_cannot_be_mapped_are_a_mismatch_that_names_them(wanted, found, reason):
    mapping = mapped_inside(wanted, found)
    assert isinstance(mapping, SchemaMismatch)
    assert reason in mapping.reason
