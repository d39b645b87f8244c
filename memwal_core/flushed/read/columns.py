"""Mapping a flushed MemTable's columns to the base table's, by field id.

Names may change after a flush, ids do not (decision 0012). Only the tombstone column is matched by name: its id is one
above the base table's highest at the time of the flush, so a column added to the base table later may have the same id.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.base_table.blobs import blob_columns
from memwal_core.flushed.read.reshaping import Matching, Reshaping, TypedIds, is_castable
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.lance_field import LanceField, inner_ids

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


@dataclass(frozen=True, slots=True)
class MergeTarget:
    """The base table's columns, field ids and primary key: the form that rows must have to be merged.

    Attributes:
        field_ids: Of the top-level columns.
        inner_ids: Of the fields inside of columns, as ``TableState`` has them; none where rows do not tell theirs.
    """

    schema: pa.Schema
    field_ids: Mapping[str, int]
    key: tuple[str, ...]
    inner_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: TableState, key: tuple[str, ...]) -> MergeTarget:
        """Return the form of the rows of a version."""
        return cls(state.schema, state.field_ids, key, state.inner_ids)

    def without(self, columns: Collection[str]) -> MergeTarget:
        """Return the target without some columns, for generations that lack them."""
        if not columns:
            return self
        kept = [each for each in self.schema if each.name not in columns]
        return replace(self, schema=pa.schema(kept, self.schema.metadata))


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """How to read a generation.

    Attributes:
        sources: Base column -> the generation's column with the same field id, in base order; only columns that the
            generation has.
        missing: Base columns that were added after the flush and that the generation therefore lacks.
        renamed: Field id -> name in the generation, where it differs from the base table's; fields inside of columns,
            too.
        replaced: Field id -> name of columns that are left out, and whose names the base table has under other ids.
        reshaped: Base column -> how values change whose column has other fields inside, or other names of them.
    """

    sources: Mapping[str, str]
    missing: tuple[str, ...]
    renamed: Mapping[int, str]
    has_tombstones: bool
    reshaped: Mapping[str, Reshaping] = field(default_factory=dict)
    replaced: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_direct(self) -> bool:
        """Whether the generation has every column as the base table has it, so that Lance can search it."""
        return not (self.missing or self.renamed or self.reshaped)

    def reshape(self, name: str, values: _Values) -> _Values:
        """Return values of a base column with the fields inside that the base table has; a cast may be left to do."""
        reshaping = self.reshaped.get(name)
        return values if reshaping is None else reshaping.apply(values)


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """Why a generation cannot be mapped exactly."""

    reason: str


def map_columns(target: MergeTarget, fields: Sequence[LanceField], schema: pa.Schema) -> ColumnMapping | SchemaMismatch:
    """Match a generation's columns, and the fields inside of them, with the base table's.

    Those that the base table no longer has are left out. A renamed one is mapped, but its id may have been reused for
    another one after the first was dropped: the caller must check.
    """
    by_id = {each.id(): each.name() for each in fields if each.name() != TOMBSTONE_COLUMN}
    inside = inner_ids(fields)
    ids = {name: target.field_ids[name] for name in target.schema.names}
    sources = {name: by_id[number] for name, number in ids.items() if number in by_id}
    matching, reshaped = Matching(), {}
    for each in target.schema:
        if each.name not in sources:
            if not each.nullable:
                matching.problems.append(f"the base table's NOT NULL column {each.name!r} was added after the flush")
            continue
        found = schema.field(sources[each.name]).type
        if each.name not in target.inner_ids or blob_columns(pa.schema([each])):
            if not is_castable(found, each.type):
                matching.problems.append(f"column {each.name!r} is {each.type} in the base table and {found} here")
            continue
        here = TypedIds(found, inside.get(sources[each.name], ()))
        there = TypedIds(each.type, target.inner_ids[each.name])
        if here != there:
            reshaped[each.name] = matching.match(each.name, here, there)
    if matching.problems:
        return SchemaMismatch("; ".join(matching.problems))
    return ColumnMapping(
        sources=sources,
        missing=tuple(name for name in ids if name not in sources),
        renamed={ids[name]: source for name, source in sources.items() if name != source} | matching.renamed,
        has_tombstones=TOMBSTONE_COLUMN in schema.names,
        reshaped=reshaped,
        replaced={number: name for number, name in by_id.items() if name in ids.keys() - sources.keys()},
    )
