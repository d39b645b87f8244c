"""Rows of one dataset by primary key."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from memwal_core.reader.rows.by_id import rows_of
from memwal_core.reader.rows.places import find_places


def rows_with_keys(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return the key and ``columns`` of every row with one of the keys, in write order; duplicates of a key included.

    ``own`` are the dataset's names of the key columns, in their order. First the rows are found, then their columns
    are taken, so that any number of keys reads no more than the key columns and the rows that are there.
    """
    rows, row_ids = find_places(dataset, keys, own, with_keys=True)
    others = tuple(name for name in dict.fromkeys(columns) if name not in own)
    if others:
        taken = rows_of(dataset, row_ids, others)
        rows = pa.Table.from_arrays([*rows.columns, *taken.columns], schema=pa.schema([*rows.schema, *taken.schema]))
    return rows
