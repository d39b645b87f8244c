"""Field ids of a flushed MemTable: exactly the base table's, because readers resolve columns by id.

Lance numbers the fields of a newly committed table 0, 1, 2, ... in depth-first order, whatever ids it is given. The
base table's ids have gaps where columns were dropped, and a field that was added inside of a column has a higher id
than the columns after it. Such ids are given to the table by a second commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lance.fragment import LanceFragment

from memwal_core.errors import InvalidRequestError
from memwal_core.format.lance_file.example import example
from memwal_core.native.scratch import scratch_directory

_HIGHEST_ID = 2**31 - 1
_KEY_METADATA = b"lance-schema:unenforced-primary-key"


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """How a WAL file's columns become the columns of a flushed MemTable.

    Attributes:
        schema: The table's schema, the tombstone column last.
        column_ids: Column -> its field id and those of all fields inside, depth first, that the table must have.
        file_fields: Field ids in the order of the file's physical columns.
        file_columns: Physical column index of each of them.
    """

    schema: pa.Schema
    column_ids: tuple[tuple[str, tuple[int, ...]], ...]
    file_fields: tuple[int, ...]
    file_columns: tuple[int, ...]
    file_version: tuple[int, int]

    @property
    def field_ids(self) -> dict[str, int]:
        """Column -> field id."""
        return {name: ids[0] for name, ids in self.column_ids}

    @property
    def all_ids(self) -> tuple[int, ...]:
        """The ids of all fields, depth first."""
        return tuple(number for _, ids in self.column_ids for number in ids)

    @property
    def has_first_ids(self) -> bool:
        """Whether a newly committed table has these ids by itself."""
        return self.all_ids == tuple(range(len(self.all_ids)))


def field_layout(base_ids: Sequence[Sequence[int]], memtable_schema: pa.Schema, storage_version: str) -> FieldLayout:
    """Compute the layout.

    Args:
        base_ids: For each column of the base table its field id and those of all fields inside, depth first.
        memtable_schema: The same columns in the same order, then the tombstone.
        storage_version: Of the files.

    Raises:
        InvalidRequestError: The ids leave none for the tombstone column.
    """
    tombstone = max((number for ids in base_ids for number in ids), default=-1) + 1
    if tombstone > _HIGHEST_ID:
        raise InvalidRequestError(
            "the base table has used up the field ids, and a flushed MemTable needs one more",
            remedy="rewrite the base table, which numbers its columns anew",
            most=_HIGHEST_ID,
        )
    column_ids = tuple(zip(memtable_schema.names, map(tuple, [*base_ids, [tombstone]]), strict=True))
    target_ids = [number for _, ids in column_ids for number in ids]
    physical = _physical_columns(memtable_schema, storage_version)
    return FieldLayout(
        schema=memtable_schema,
        column_ids=column_ids,
        file_fields=tuple(target_ids[ordinal] for ordinal in physical.fields),
        file_columns=tuple(physical.columns),
        file_version=physical.version,
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
