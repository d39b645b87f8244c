"""Rows of one dataset by primary key."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.format.columns import ROW_ADDRESS
from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.rows.key_condition import condition_on
from memwal_core.reader.rows.places import find_places, index_names_rows


def rows_with_keys(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return the key and ``columns`` of every row with one of the keys, in write order; duplicates of a key included.

    ``own`` are the dataset's names of the key columns, in their order. First the rows are found, then their columns
    are taken, so that any number of keys reads no more than the key columns and the rows that are there. Where an
    index names exactly those rows, Lance does both at once.
    """
    others = tuple(name for name in dict.fromkeys(columns) if name not in own)
    with translated("look up rows", dataset.uri):
        is_exact = index_names_rows(dataset, keys, own)
    if is_exact:
        return _at_once(dataset, condition_on(keys, own), [*own, *others])
    rows, row_ids = find_places(dataset, keys, own, with_keys=True)
    if others:
        taken = rows_of(dataset, row_ids, others)
        rows = pa.Table.from_arrays([*rows.columns, *taken.columns], schema=pa.schema([*rows.schema, *taken.schema]))
    return rows


def _at_once(dataset: lance.LanceDataset, condition: str, columns: list[str]) -> pa.Table:
    with translated("look up rows by key", dataset.uri):
        # Of a lookup of one key, Lance takes a twentieth for columns that are named.
        named = None if set(columns) == set(dataset.schema.names) else columns
        rows = dataset.scanner(columns=named, filter=condition, with_row_address=True).to_table()
    return (rows.sort_by(ROW_ADDRESS) if rows.num_rows > 1 else rows).select(columns)
