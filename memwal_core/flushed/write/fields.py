"""Field ids of a flushed MemTable: exactly the base table's, because readers resolve columns by id.

Lance numbers the fields of a newly committed table 0, 1, 2, ... in depth-first order, whatever ids it is given. Where
the base table's ids have gaps (dropped columns), placeholder columns take the missing ids and are dropped right after
the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lance.fragment import LanceFragment

from memwal_core.errors import InvalidRequestError
from memwal_core.format.lance_field import LanceField, all_ids
from memwal_core.format.lance_file.example import example
from memwal_core.native.scratch import scratch_directory

_PLACEHOLDER = "__memwal_gap_"
_MOST_PLACEHOLDERS = 10_000
_KEY_METADATA = b"lance-schema:unenforced-primary-key"


@dataclass(frozen=True, slots=True)
class NotedField:
    """A column known only by type and field id; the fields inside are numbered as Lance numbers them."""

    field: pa.Field
    number: int

    def name(self) -> str:
        """Return the column name."""
        return str(self.field.name)

    def id(self) -> int:
        """Return the field id."""
        return self.number

    def children(self) -> Sequence[NotedField]:
        """Return the nested fields in order; their ids follow that of the column."""
        found: list[NotedField] = []
        number = self.number + 1
        for inner in inner_fields(self.field.type):
            found.append(NotedField(inner, number))
            number += len(list(all_ids([found[-1]])))
        return found


def inner_fields(data_type: pa.DataType) -> list[pa.Field]:
    """Return the fields of a type that have ids of their own in Lance."""
    if pa.types.is_struct(data_type):
        return [data_type.field(number) for number in range(data_type.num_fields)]
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [data_type.value_field]
    if pa.types.is_map(data_type):
        return [pa.field("entries", pa.struct([data_type.key_field, data_type.item_field]))]
    return []


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """How a WAL file's columns become the columns of a flushed MemTable.

    Attributes:
        table_schema: Schema to commit, placeholders included.
        field_ids: Top-level column -> field id that the finished table must have.
        file_fields: Field ids in the order of the file's physical columns.
        file_columns: Physical column index of each of them.
    """

    table_schema: pa.Schema
    placeholders: tuple[str, ...]
    field_ids: tuple[tuple[str, int], ...]
    file_fields: tuple[int, ...]
    file_columns: tuple[int, ...]
    file_version: tuple[int, int]


def field_layout(base_fields: Sequence[LanceField], memtable_schema: pa.Schema, storage_version: str) -> FieldLayout:
    """Compute the layout; ``memtable_schema`` has the base columns in the order of ``base_fields``, then the tombstone.

    Raises:
        InvalidRequestError: The ids do not ascend (a nested field was added or dropped), so no commit can reproduce
            them.
    """
    base_ids = list(all_ids(base_fields))
    target_ids = [*base_ids, max(base_ids, default=-1) + 1]
    fields: list[pa.Field] = []
    placeholders: list[str] = []
    next_id = 0
    for top, field in zip([*base_fields, None], memtable_schema, strict=True):
        ids = list(all_ids([top])) if top is not None else target_ids[-1:]
        _refuse_unordered(field.name, ids, next_id)
        _refuse_wide_gap(field.name, ids[0], next_id)
        for missing in range(next_id, ids[0]):
            name = f"{_PLACEHOLDER}{missing}"
            fields.append(pa.field(name, pa.null()))
            placeholders.append(name)
        fields.append(field)
        next_id = ids[-1] + 1
    physical = _physical_columns(memtable_schema, storage_version)
    tops = [*(field.id() for field in base_fields), target_ids[-1]]
    return FieldLayout(
        table_schema=pa.schema(fields),
        placeholders=tuple(placeholders),
        field_ids=tuple(zip(memtable_schema.names, tops, strict=True)),
        file_fields=tuple(target_ids[ordinal] for ordinal in physical.fields),
        file_columns=tuple(physical.columns),
        file_version=physical.version,
    )


def _refuse_wide_gap(name: str, first: int, next_id: int) -> None:
    """Refuse a gap that no history of added and dropped columns leaves: each missing id costs a placeholder."""
    if first - next_id > _MOST_PLACEHOLDERS:
        raise InvalidRequestError(
            "the field ids of the base table have too large a gap for a flushed MemTable with the same ids",
            remedy="rewrite the base table, which numbers its columns anew",
            column=name,
            field_id=first,
            most_missing=_MOST_PLACEHOLDERS,
        )


def _refuse_unordered(name: str, ids: Sequence[int], next_id: int) -> None:
    if ids[0] < next_id or list(ids) != list(range(ids[0], ids[0] + len(ids))):
        raise InvalidRequestError(
            "the base table's field ids do not ascend, so a flushed MemTable cannot have the same ids",
            remedy="rewrite the base table so that its field ids ascend in schema order (nested fields included)",
            column=name,
            field_ids=tuple(ids),
            smallest_possible=next_id,
        )


@dataclass(frozen=True, slots=True)
class _PhysicalColumns:
    fields: list[int]
    columns: list[int]
    version: tuple[int, int]


def _physical_columns(schema: pa.Schema, storage_version: str) -> _PhysicalColumns:
    """Ask Lance which fields of a schema have physical columns; fields are numbered 0, 1, 2, ... depth first."""
    nullable = pa.schema([_without_key(field.with_nullable(True)) for field in schema])
    # Lance rejects a table without rows, and in version 2.0 a NULL struct.
    one_row = pa.table([example(field.type, 1) for field in nullable], schema=nullable)
    with scratch_directory("layout") as scratch:
        sample = LanceFragment.create(str(scratch), one_row, data_storage_version=storage_version).files[0]
    return _PhysicalColumns(
        list(sample.fields), list(sample.column_indices), (sample.file_major_version, sample.file_minor_version)
    )


def _without_key(field: pa.Field) -> pa.Field:
    """Return the field without its key metadata: it would have to be NOT NULL."""
    kept = {key: value for key, value in (field.metadata or {}).items() if not key.startswith(_KEY_METADATA)}
    return field.with_metadata(kept)
