"""What a writer derives from one version of the base table's schema."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState
from memwal_core.errors import InvalidRequestError
from memwal_core.flushed.write import FieldLayout, field_layout
from memwal_core.format.lance_field import count_ids
from memwal_core.memtable import memtable_schema
from memwal_core.wal import EntryShape, entry_file_version, noted_column_ids
from memwal_core.writer.admission.storable import unstorable_columns


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The shape of the rows that a writer takes, stores and flushes.

    Attributes:
        storage_version: Version of the Lance format for entries and flushed MemTables.
    """

    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    memtable_schema: pa.Schema
    fields: FieldLayout
    storage_version: str

    @property
    def entry_shape(self) -> EntryShape:
        """The shape of WAL entries with this layout."""
        return EntryShape(self.memtable_schema, dict(self.fields.column_ids[:-1]))

    @classmethod
    def of(cls, state: TableState) -> TableLayout:
        """Derive the layout from a version of the base table.

        Raises:
            InvalidRequestError: MemWAL cannot use the table's primary key or store its columns.
        """
        key = state.merge_key()
        schema = memtable_schema(state.schema, key)
        version = entry_file_version(schema, state.data_storage_version)
        _require_storable_types(schema, version)
        fields = field_layout(list(state.column_ids.values()), schema, version)
        return cls(state.version, state.schema, key, schema, fields, version)


def _require_storable_types(schema: pa.Schema, version: str) -> None:
    unstorable = unstorable_columns(schema.remove_metadata(), version)
    if unstorable:
        raise InvalidRequestError(
            "Lance cannot store these columns in files of the table's version and read them again",
            remedy="give the columns another type (docs/types.md)",
            version=version,
            columns=[name for name, _ in unstorable],
            reason=unstorable[0][1],
        )


def layout_of_rows(table: BaseTable, current: TableLayout, rows_schema: pa.Schema) -> TableLayout:
    """Return the layout of rows that a writer left in the WAL.

    It is that of the newest version of the base table with these columns. If none exists any more, the field
    ids that the entries name are enough; entries that name none need such a version.

    Raises:
        InvalidRequestError: Nothing tells which fields of the base table the columns are.
    """
    if current.entry_shape.fits(rows_schema):
        return current
    for entry in reversed(table.dataset().versions()):
        state = table.state(entry["version"])
        # Of its own key: a column may have been dropped from the key since.
        shape = EntryShape(memtable_schema(state.schema, state.primary_key.columns), state.column_ids)
        if shape.fits(rows_schema):
            return TableLayout.of(state)
    return _layout_by_ids(current, rows_schema)


def _layout_by_ids(current: TableLayout, rows_schema: pa.Schema) -> TableLayout:
    """Return the layout of rows whose entries record field ids."""
    ids = noted_column_ids(rows_schema)
    names = {numbers[0]: name for name, numbers in (ids or {}).items()}
    known = {numbers[0]: name for name, numbers in current.entry_shape.column_ids.items()}
    wanted = [current.fields.field_ids[name] for name in current.key]
    own = [field for field in rows_schema if field.name in (ids or {})]
    is_whole = ids is not None and all(len(ids[field.name]) == count_ids(field.type) for field in own)
    if ids is None or not is_whole or not all(number in names for number in wanted):
        raise InvalidRequestError(
            "the WAL has rows with columns that no version of the table has, and does not record their field ids",
            remedy="add these columns to the table again, by name and type in this order; open and flush the region; "
            "then drop them",
            found=str(rows_schema.remove_metadata()),
            expected=str(current.memtable_schema.remove_metadata()),
            field_ids=ids,
        )
    metadata = {number: current.schema.field(name).metadata for number, name in known.items()}
    schema = pa.schema([field.with_metadata(metadata.get(ids[field.name][0])) for field in own])
    key = dict.fromkeys(names[number] for number in wanted)
    key.update(dict.fromkeys(field.name for field in own if not field.nullable))  # Dropped from the key since.
    rows = memtable_schema(schema, tuple(key))
    version = entry_file_version(rows, current.storage_version)
    fields = field_layout([ids[field.name] for field in own], rows, version)
    return TableLayout(current.version, schema, tuple(key), rows, fields, version)
