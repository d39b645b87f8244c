"""Unflushed rows as rows of the base table, whatever schema they were written in.

WAL entries name the field ids of their columns, and MemTables have them. Entries that do not name them get those of the
newest version of the base table with such columns, as for a writer that replays the rows. The ids then map as for
flushed MemTables (decision 0012): columns added since are backfilled, dropped ones left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from memwal_core.base_table import TableReader, TableState
from memwal_core.base_table.history.fields import MAX_VERSIONS, Renamings
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.flushed.read import ColumnMapping, MergeTarget, SchemaMismatch, map_columns, numbered
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.format.lance_field import column_ids
from memwal_core.memtable import memtable_schema
from memwal_core.native.casting import cast
from memwal_core.reader.plan.sources import GenerationSource
from memwal_core.reader.rows.generation_rows import Inherit, MemoryRows
from memwal_core.wal import noted_column_ids


@dataclass(frozen=True, slots=True)
class _Column:
    """A column with the base table's field id, in the form of a field of a Lance schema."""

    called: str
    field_id: int
    inside: tuple[_Column, ...] = ()

    @classmethod
    def of(cls, name: str, number: int, *inside: int) -> _Column:
        return cls(name, number, tuple(cls("", each) for each in inside))

    def name(self) -> str:
        return self.called

    def id(self) -> int:
        return self.field_id

    def children(self) -> Sequence[_Column]:
        return self.inside


def unflushed_rows(
    table: TableReader, state: TableState, source: GenerationSource, target: MergeTarget, backfill: Inherit
) -> MemoryRows:
    """Return unflushed rows as rows of the base table; may read older versions of the table.

    Raises:
        InvalidRequestError: Their schema cannot be mapped to the table's, or no retained version has it.
    """
    assert source.rows is not None  # noqa: S101 - unflushed rows are in the source
    mapping = _mapping(table, state, source, target)
    deleted = source.rows.column(TOMBSTONE_COLUMN).to_numpy().astype(bool)
    fields = [target.schema.field(name) for name in mapping.sources]
    found = [mapping.reshape(field.name, source.rows.column(mapping.sources[field.name])) for field in fields]
    columns = [cast(column, field.type) for column, field in zip(found, fields, strict=True)]
    schema = pa.schema([each if each.name in target.key else each.with_nullable(True) for each in fields])
    rows = pa.Table.from_arrays(columns, schema=schema)
    keys = rows.select(list(target.key)) if target.key else numbered(rows.num_rows)
    return MemoryRows(source, rows, keys, deleted, target, mapping.missing, backfill)


def _mapping(table: TableReader, state: TableState, source: GenerationSource, target: MergeTarget) -> ColumnMapping:
    assert source.rows is not None  # noqa: S101 - as above
    found = source.rows.schema
    ids = _noted_ids(found)
    if ids is None and _same(found, memtable_schema(target.schema, target.key)):
        ids = state.column_ids
    if ids is None:
        ids = _ids_in_history(table, state, target.key, found)
    if ids is None:
        raise _unreadable(source, target, found, "no retained version of the table has these columns")
    fields = [_Column.of(name, *numbers) for name, numbers in ids.items()]
    # Entries of other clients need not note the ids of fields inside of columns.
    told = {each.id() for each in fields if each.inside}
    inner = {name: known for name, known in target.inner_ids.items() if target.field_ids[name] in told}
    mapping = map_columns(replace(target, inner_ids=inner), fields, found)
    if isinstance(mapping, SchemaMismatch):
        raise _unreadable(source, target, found, mapping.reason)
    unproven = Renamings(table, state.version).unproven(mapping.renamed, mapping.replaced)
    if unproven:
        raise _unreadable(source, target, found, f"no retained version proves that {unproven} were renamed or replaced")
    return mapping


def _same(found: pa.Schema, expected: pa.Schema) -> bool:
    return [(each.name, each.type) for each in found] == [(each.name, each.type) for each in expected]


def _noted_ids(schema: pa.Schema) -> Mapping[str, tuple[int, ...]] | None:
    """Return the ids that the rows came with, by column; None if a column came without one."""
    noted = noted_column_ids(schema)
    own = [name for name in schema.names if name != TOMBSTONE_COLUMN]
    return {name: noted[name] for name in own} if noted is not None and noted.keys() >= set(own) else None


def _ids_in_history(
    table: TableReader, state: TableState, key: Sequence[str], found: pa.Schema
) -> Mapping[str, tuple[int, ...]] | None:
    """Return the ids, by column, of the newest base version whose rows would have this schema in a WAL."""
    for number in range(state.version, max(0, state.version - MAX_VERSIONS), -1):
        try:
            dataset = table.dataset(number)
        except ObjectNotFoundError:
            return None
        if _same(found, memtable_schema(dataset.schema, key)):
            return column_ids(dataset.lance_schema.fields())
    return None


def _unreadable(source: GenerationSource, target: MergeTarget, found: pa.Schema, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        "unflushed rows have a schema that cannot be mapped to the table's",
        remedy="flush the region by opening a writer for it; if that fails, undo the schema change",
        region_id=str(source.region_id),
        generation=source.generation,
        reason=reason,
        expected=[(field.name, str(field.type)) for field in target.schema],
        found=[(field.name, str(field.type)) for field in found if field.name != TOMBSTONE_COLUMN],
    )
