"""A small table with something to do for every job: rows that wait for a merge, and an index."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.region.spec import bucket_spec
from memwal_core.writer import TableWriter

_KEY = {"lance-schema:unenforced-primary-key": "true"}
_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_KEY),
        pa.field("customer", pa.int64()),
        pa.field("amount", pa.float64()),
    ]
)
BUCKETS = 4
ROUNDS = 6
ROUND_ROWS = 2_000
OVERLAP_ROWS = 500
"""Rows of a round that the round before wrote already."""


def make_sample(path: Path) -> BaseTable:
    """Create the table ``orders`` and write a few rounds into it, of which nothing is merged.

    Args:
        path: Where; nothing may be there.
    """
    lance.write_dataset(_orders(0), str(path))
    table = BaseTable.open(str(path))
    table.dataset().create_scalar_index("customer", "BTREE", name="customer_idx")
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, BUCKETS)])
    with TableWriter.open(table) as writer:
        for number in range(1, ROUNDS + 1):
            writer.put(_orders(number))
            writer.flush()
    return table


def expected_rows() -> int:
    """Return the rows of the table when everything is merged."""
    return (ROUNDS + 1) * ROUND_ROWS - ROUNDS * OVERLAP_ROWS


def _orders(number: int) -> pa.Table:
    first = number * (ROUND_ROWS - OVERLAP_ROWS)
    ids = np.arange(first, first + ROUND_ROWS)
    return pa.table({"id": ids, "customer": ids % 97, "amount": ids * 0.5 + number}, schema=_SCHEMA)
