"""What a writer derives from one version of the base table's schema."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from memwal_core.base_table import BaseTable, TableState
from memwal_core.flush import FieldLayout, field_layout
from memwal_core.memtable import memtable_schema
from memwal_core.wal import entry_file_version


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The shape of the rows that a writer takes, stores and flushes.

    Attributes:
        version: Base table version it was derived from.
        schema: The base table's schema.
        key: Primary key columns.
        memtable_schema: Schema of MemTables and WAL entries.
        fields: Field ids of flushed MemTables.
        storage_version: Version of the Lance format for entries and flushed MemTables.
    """

    version: int
    schema: pa.Schema
    key: tuple[str, ...]
    memtable_schema: pa.Schema
    fields: FieldLayout
    storage_version: str

    @classmethod
    def of(cls, table: BaseTable, state: TableState) -> TableLayout:
        """Derive the layout from a version of the base table.

        Raises:
            InvalidRequestError: The table has no usable primary key, or its field ids cannot be
                reproduced in a flushed MemTable.
        """
        key = state.require_primary_key().columns
        schema = memtable_schema(state.schema, key)
        version = entry_file_version(schema, state.data_storage_version)
        fields = field_layout(table.dataset(state.version).lance_schema.fields(), schema, version)
        return cls(state.version, state.schema, key, schema, fields, version)


def layout_of_rows(table: BaseTable, current: TableLayout, rows_schema: pa.Schema) -> TableLayout:
    """Return the newest layout whose MemTable schema some stored rows have.

    Args:
        table: The base table.
        current: The layout of its newest version.
        rows_schema: Schema of the rows.

    Returns:
        ``current`` if they have its schema, or if no version that still exists has theirs.
    """
    if _fits(current, rows_schema):
        return current
    for entry in reversed(table.dataset().versions()):
        state = table.state(entry["version"])
        if memtable_schema(state.schema, current.key).remove_metadata().equals(rows_schema):
            return TableLayout.of(table, state)
    return current


def _fits(layout: TableLayout, rows_schema: pa.Schema) -> bool:
    return bool(layout.memtable_schema.remove_metadata().equals(rows_schema))
