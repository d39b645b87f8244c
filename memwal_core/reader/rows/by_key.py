"""Rows of one dataset by primary key."""

from __future__ import annotations

from collections.abc import Sequence

import lance
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.reader.rows.key_condition import condition_on

_MAX_CONDITION_KEYS = 1000
"""Up to this many keys become an SQL condition; more are found by one scan of the key columns."""


def rows_with_keys(dataset: lance.LanceDataset, keys: pa.Table, own: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Return every row with one of the keys, and its address; duplicates of a key included.

    ``own`` are the dataset's names of the key columns, in their order.
    """
    wanted = list(dict.fromkeys([*own, *columns]))
    with translated("look rows up", dataset.uri):
        if keys.num_rows <= _MAX_CONDITION_KEYS:
            return dataset.to_table(columns=wanted, filter=condition_on(keys, own), with_row_address=True)
        schema = pa.schema([pa.field(name, field.type) for name, field in zip(own, keys.schema, strict=True)])
        search = KeySearch(keys.rename_columns(list(own)), own)
        scanner = dataset.scanner(columns=wanted, with_row_address=True)
        kept = [scanner.projected_schema.empty_table()]
        for batch in scanner.to_batches():
            rows = pa.Table.from_batches([batch])
            kept.append(rows.filter(pa.array(search.found(rows.select(list(own)).cast(schema)))))
        return pa.concat_tables(kept)
