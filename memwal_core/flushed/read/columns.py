"""Mapping a flushed MemTable's columns to the base table's, by field id.

Names may change after a flush, ids do not (decision 0012). Only the tombstone column is matched by name: its id is one
above the base table's highest at the time of the flush, so a column added to the base table later may have the same id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from memwal_core.base_table import TableState
from memwal_core.base_table.blobs import blob_columns, is_blob_type
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.lance_field import LanceField, inner_ids


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
        renamed: Field id -> name in the generation, where it differs from the base table's.
    """

    sources: Mapping[str, str]
    missing: tuple[str, ...]
    renamed: Mapping[int, str]
    has_tombstones: bool


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """Why a generation cannot be mapped exactly."""

    reason: str


def map_columns(target: MergeTarget, fields: Sequence[LanceField], schema: pa.Schema) -> ColumnMapping | SchemaMismatch:
    """Match a generation's columns with the base table's.

    Columns that the base table no longer has are left out. A renamed column is mapped, but its id may have been reused
    for another column after the first was dropped: the caller must check.
    """
    by_id = {each.id(): each.name() for each in fields if each.name() != TOMBSTONE_COLUMN}
    mismatch = "; ".join(_mismatches(target, by_id, schema, inner_ids(fields)))
    if mismatch:
        return SchemaMismatch(mismatch)
    ids = {name: target.field_ids[name] for name in target.schema.names}
    sources = {name: by_id[number] for name, number in ids.items() if number in by_id}
    return ColumnMapping(
        sources=sources,
        missing=tuple(name for name in ids if name not in sources),
        renamed={ids[name]: source for name, source in sources.items() if name != source},
        has_tombstones=TOMBSTONE_COLUMN in schema.names,
    )


def _mismatches(
    target: MergeTarget, by_id: Mapping[int, str], schema: pa.Schema, inside: Mapping[str, tuple[int, ...]]
) -> Iterator[str]:
    for each in target.schema:
        source = by_id.get(target.field_ids[each.name])
        if source is None:
            if not each.nullable:
                yield f"the base table's NOT NULL column {each.name!r} was added after the flush"
        elif not _castable(schema.field(source).type, each.type):
            yield f"column {each.name!r} is {each.type} in the base table and {schema.field(source).type} here"
        elif each.name in target.inner_ids and not blob_columns(pa.schema([each])):
            wanted, found = target.inner_ids[each.name], inside.get(source, ())
            if wanted != found:
                yield (
                    f"fields inside of column {each.name!r} were dropped and added again under the same names: their "
                    f"ids are {list(wanted)} in the base table and {list(found)} here"
                )


_LARGE_FORMS = ({pa.string(), pa.large_string()}, {pa.binary(), pa.large_binary()})


def _castable(source: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether every value survives the cast unchanged."""
    if isinstance(source, pa.BaseExtensionType) or isinstance(target, pa.BaseExtensionType):
        # Some have no hash, and the storage of Lance's blobs differs from file to file; their rows are never copied.
        return bool(source.equals(target)) or (is_blob_type(source) and is_blob_type(target))
    return bool(source.equals(target)) or any(source in forms and target in forms for forms in _LARGE_FORMS)
