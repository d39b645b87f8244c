"""Backfilling columns that were added to the base table after a MemTable was flushed (decision 0012).

A row takes the value from the next older source that holds its key and has the column: an older generation of its
region, and last the base table. A tombstone on the way, or a key that no older source holds, gives NULL. A merge gives
the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table.keys.copies import require_single
from memwal_core.base_table.keys.search import KeySearch, positions
from memwal_core.deduplicate import last_row_per_key
from memwal_core.flushed.read import MergeTarget
from memwal_core.native.casting import cast_rows, no_rows
from memwal_core.reader.rows.by_key import rows_with_keys
from memwal_core.reader.rows.generation_rows import FlushedRows, MemoryRows, RowRequest


def backfilled_values(
    keys: pa.Table,
    columns: Sequence[str],
    older: Sequence[FlushedRows | MemoryRows],
    base: lance.LanceDataset,
    target: MergeTarget,
) -> pa.Table:
    """Return ``columns``, which the rows' own generation lacks, for each row of ``keys``, in that order.

    ``keys`` are distinct; ``older`` are the older generations of the region that the base table does not contain,
    newest first.
    """
    by_column = {name: _backfilled(keys, name, older, base, target) for name in columns}
    schema = pa.schema([target.schema.field(name) for name in columns])
    return pa.Table.from_arrays([by_column[name] for name in columns], schema=schema)


def _backfilled(
    keys: pa.Table,
    column: str,
    older: Sequence[FlushedRows | MemoryRows],
    base: lance.LanceDataset,
    target: MergeTarget,
) -> pa.ChunkedArray:
    key = list(target.key)
    schema = pa.schema([target.schema.field(name) for name in (*key, column)])
    found = [no_rows(schema)]
    pending = keys.select(key)
    for rows in older:
        if not pending.num_rows:
            break
        own = np.flatnonzero(KeySearch(pending, key).found(rows.keys))
        last = own[last_row_per_key(rows.keys.take(pa.array(own)), key)]
        settled = last if rows.has(column) else last[rows.deleted[last]]
        if not len(settled):
            continue
        live = settled[~rows.deleted[settled]]
        batches = rows.read(live, RowRequest((*key, column)))
        found.append(pa.Table.from_batches([cast_rows(batch, schema) for batch in batches], schema=schema))
        done = rows.keys.take(pa.array(settled))
        pending = pending.filter(pa.array(~KeySearch(done, key).found(pending)))
    if pending.num_rows:
        held = rows_with_keys(base, pending, key, [column]).select([*key, column])
        require_single(base, held, key)
        found.append(cast_rows(held, schema))
    values = pa.concat_tables(found)
    # A key that no source holds has a NULL position, which take turns into NULL.
    return values.column(column).take(positions(keys, values.select(key), key))
