"""Turning the rows of a share into chunks in which every key occurs once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.native.casting import trimmed


def deduplicated(tables: Iterable[pa.Table], key: Sequence[str]) -> Iterator[pa.Table]:
    """Keep the last row of each key. Rows of one key are adjacent, across tables, too.

    Each key is written only once, so an interrupted attempt never leaves a value that the batch itself replaces.
    """
    open_row: pa.Table | None = None
    for table in tables:
        if not table.num_rows:
            continue
        rows = table if open_row is None else pa.concat_tables([open_row, table])
        last = _is_last_of_its_key(rows.select(list(key)))
        open_row = rows.slice(rows.num_rows - 1)
        kept = rows.slice(0, rows.num_rows - 1)
        yield kept if last.all() else kept.filter(pa.array(last))
    if open_row is not None:
        yield open_row


def in_chunks(tables: Iterable[pa.Table], limit_bytes: int) -> Iterator[pa.Table]:
    """Gather and split tables into chunks of at most ``limit_bytes`` Arrow bytes; a single row may be larger."""
    waiting: list[pa.Table] = []
    size = 0
    for table in tables:
        for piece in _divided(table, limit_bytes):
            if waiting and size + piece.nbytes > limit_bytes:
                yield pa.concat_tables(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += piece.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _is_last_of_its_key(keys: pa.Table) -> np.ndarray:
    """Tell for all rows but the last whether the next row has another key."""
    changes = np.zeros(keys.num_rows - 1, dtype=bool)
    for column in keys.columns:
        values = column.combine_chunks()
        differs = pc.not_equal(values.slice(0, len(values) - 1), values.slice(1))
        changes |= differs.to_numpy(zero_copy_only=False)
    return changes


def _divided(table: pa.Table, limit_bytes: int) -> Iterator[pa.Table]:
    """Divide a table into pieces within the limit, again and again where rows are larger than the others."""
    table = trimmed(table)
    if table.num_rows <= 1 or table.nbytes <= limit_bytes:
        if table.num_rows:
            yield table
        return
    rows = -(-table.num_rows // min(table.num_rows, -(-table.nbytes // limit_bytes)))
    for start in range(0, table.num_rows, rows):
        yield from _divided(table.slice(start, rows), limit_bytes)
