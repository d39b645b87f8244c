"""Values of columns that a flushed MemTable lacks because they were added after its flush (decision 0012).

The value of a row comes from the next older source that holds its key and has the column: an older
generation of its region, the base table at last. A tombstone on the way, or a key that nobody holds,
gives NULL. A merge gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table.key_search import KeySearch, positions
from memwal_core.generations import MergeTarget
from memwal_core.newest import last_row_per_key
from memwal_core.reader.by_key import rows_with_keys
from memwal_core.reader.rows import FlushedRows, MemoryRows, RowRequest


def inherited_values(
    keys: pa.Table,
    columns: Sequence[str],
    older: Sequence[FlushedRows | MemoryRows],
    base: lance.LanceDataset,
    target: MergeTarget,
) -> pa.Table:
    """Return what rows inherit.

    Args:
        keys: The key columns, each key once.
        columns: Columns that the rows' own generation lacks.
        older: Older generations of the region that the base table does not contain, newest first.
        base: The base version that is read.
        target: The base table's side.

    Returns:
        ``columns``, one row per key, in the order of the keys.

    Raises:
        ObjectNotFoundError: A file is gone.
        UnavailableError: Storage failed.
    """
    by_column = {name: _inherited(keys, name, older, base, target) for name in columns}
    schema = pa.schema([target.schema.field(name) for name in columns])
    return pa.Table.from_arrays([by_column[name] for name in columns], schema=schema)


def _inherited(
    keys: pa.Table,
    column: str,
    older: Sequence[FlushedRows | MemoryRows],
    base: lance.LanceDataset,
    target: MergeTarget,
) -> pa.ChunkedArray:
    key = list(target.key)
    schema = pa.schema([target.schema.field(name) for name in (*key, column)])
    found = [schema.empty_table()]
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
        found.append(pa.Table.from_batches([batch.cast(schema) for batch in batches], schema=schema))
        done = rows.keys.take(pa.array(settled))
        pending = pending.filter(pa.array(~KeySearch(done, key).found(pending)))
    if pending.num_rows:
        found.append(rows_with_keys(base, pending, key, [column]).select([*key, column]).cast(schema))
    values = pa.concat_tables(found)
    # A key of which nobody says anything has no position, and take makes that NULL.
    return values.column(column).take(positions(keys, values.select(key), key))
