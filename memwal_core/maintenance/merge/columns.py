"""Mapping a flushed MemTable's columns to the base table's, by field id.

Names may change after a flush, ids do not. The tombstone column takes part by its name only: its
id is one above the base table's highest at the time of the flush, so a column added to the base
table later may have the same one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from memwal_core.memtable.schema import TOMBSTONE_COLUMN


class LanceField(Protocol):
    """The part of pylance's field that is used here."""

    def name(self) -> str:
        """Return the column name."""
        ...

    def id(self) -> int:
        """Return the field id."""
        ...

    def children(self) -> Sequence[LanceField]:
        """Return the nested fields in order."""
        ...


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """What rows must look like to be merged.

    Attributes:
        schema: The base table's Arrow schema.
        field_ids: Column name -> field id, top level.
        key: Primary key columns, in key order.
    """

    schema: pa.Schema
    field_ids: Mapping[str, int]
    key: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the target as JSON-able values."""
        return {
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode("ascii"),
            "field_ids": dict(self.field_ids),
            "key": list(self.key),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> MergeTarget:
        """Rebuild from ``to_dict``."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(str(values["schema"]))))
        field_ids, key = values["field_ids"], values["key"]
        assert isinstance(field_ids, Mapping)  # noqa: S101 - narrows the type of our own JSON
        assert isinstance(key, Sequence)  # noqa: S101
        return cls(schema, {str(name): int(number) for name, number in field_ids.items()}, tuple(map(str, key)))


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """How to read a generation.

    Attributes:
        sources: Base column -> the generation's column with the same field id, in base order.
        has_tombstones: Whether the generation has the tombstone column.
    """

    sources: Mapping[str, str]
    has_tombstones: bool


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """Why a generation cannot be mapped exactly.

    Attributes:
        reason: For the merge report.
    """

    reason: str


def map_columns(target: MergeTarget, fields: Sequence[LanceField], schema: pa.Schema) -> ColumnMapping | SchemaMismatch:
    """Match a generation's columns with the base table's.

    Args:
        target: The base table's side.
        fields: The generation's top-level fields.
        schema: The generation's Arrow schema.
    """
    by_id = {field.id(): field.name() for field in fields if field.name() != TOMBSTONE_COLUMN}
    mismatch = "; ".join(_mismatches(target, by_id, schema))
    if mismatch:
        return SchemaMismatch(mismatch)
    sources = {name: by_id[target.field_ids[name]] for name in target.schema.names}
    return ColumnMapping(sources, TOMBSTONE_COLUMN in schema.names)


def _mismatches(target: MergeTarget, by_id: Mapping[int, str], schema: pa.Schema) -> Iterator[str]:
    for field in target.schema:
        source = by_id.get(target.field_ids[field.name])
        if source is None:
            yield f"the base table's column {field.name!r} was added after the flush"
        elif not _castable(schema.field(source).type, field.type):
            yield f"column {field.name!r} is {field.type} in the base table and {schema.field(source).type} here"
    known = set(target.field_ids.values())
    for field_id, name in by_id.items():
        if field_id not in known:
            yield f"column {name!r} is no longer in the base table"


_LARGE_FORMS = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether every value survives the cast unchanged."""
    same = bool(source.equals(target))
    return same or _LARGE_FORMS.get(source) == target or _LARGE_FORMS.get(target) == source
