"""The schema of MemTable rows: the base table's, plus the tombstone mark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from memwal_core.format.columns import TOMBSTONE_COLUMN


def memtable_schema(base_schema: pa.Schema, key_columns: Sequence[str]) -> pa.Schema:
    """Return the schema of WAL entries and flushed MemTables.

    Non-key columns become nullable, since a tombstone has only a key. Field metadata stays, because it
    marks the primary key; schema metadata does not.
    """
    fields = [field if field.name in key_columns else field.with_nullable(True) for field in base_schema]
    return pa.schema([*fields, pa.field(TOMBSTONE_COLUMN, pa.bool_(), nullable=False)])


def with_tombstones(rows: pa.Table, schema: pa.Schema, deleted: bool) -> pa.Table:
    """Return validated rows in the MemTable schema, each marked as written or as deleted."""
    return pa.Table.from_arrays([*rows.columns, _marks(rows.num_rows, deleted)], schema=schema)


@lru_cache(maxsize=16)  # A bit per row; callers tend to write batches of one size.
def _marks(rows: int, deleted: bool) -> pa.Array:
    return pa.repeat(pa.scalar(deleted), rows)
