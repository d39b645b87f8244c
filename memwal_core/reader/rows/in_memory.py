"""Filtering rows in memory with Lance, so that a condition means the same as on the base table."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.native.casting import compact_rows

_ADDRESS = "memory://rows"


def as_dataset(rows: pa.Table | pa.RecordBatch) -> lance.LanceDataset:
    """Return a throw-away dataset of rows; row i has the address i."""
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    with translated("load rows into memory", _ADDRESS):
        return lance.write_dataset(compact_rows(table.replace_schema_metadata(None)), _ADDRESS, max_rows_per_file=2**31)


def filtered(rows: pa.RecordBatch, filter_sql: str, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield ``columns`` of the rows that fulfil a condition; ``rows`` has all columns that it may name."""
    if not rows.num_rows:
        return
    dataset = as_dataset(rows)
    with translated("filter rows in memory", _ADDRESS):
        found = dataset.to_table(columns=list(columns), filter=filter_sql)
    schema = pa.schema([rows.schema.field(name) for name in columns])
    yield from pa.Table.from_arrays(found.columns, schema=schema).to_batches()
