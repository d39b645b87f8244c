"""Keeping rows gives what pyarrow's own filter gives, for every column type."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from memwal_core.flushed.read.row_filter import kept_rows

VECTORS = pa.list_(pa.field("element", pa.float32()), 3)
COLUMNS = {
    "vectors": pa.array([[float(n), n + 0.5, -n] for n in range(10)], VECTORS),
    "slice of vectors": pa.array([[float(n)] * 3 for n in range(20)], VECTORS).slice(7, 10),
    "half floats": pa.array([np.float16([n, 1]) for n in range(10)], pa.list_(pa.float16(), 2)),
    "bytes": pa.array([[n, 255] for n in range(10)], pa.list_(pa.uint8(), 2)),
    "null vectors": pa.array([[1.0] * 3, None] * 5, VECTORS),
    "null values": pa.array([[1.0, None, 2.0]] * 10, VECTORS),
    "booleans": pa.array([[True, False]] * 10, pa.list_(pa.bool_(), 2)),
    "text": pa.array([str(n) for n in range(10)]),
    "no values at all": pa.array([[]] * 10, pa.list_(pa.float32(), 0)),
}
MASKS = {"some": [0, 3, 9], "none": [], "all": list(range(10))}


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize("rows", MASKS.values(), ids=MASKS)
def test_kept_rows_equal_those_of_the_general_filter(column, rows):
    mask = np.zeros(10, dtype=bool)
    mask[rows] = True
    batch = pa.record_batch({"c": column, "n": pa.array(range(10))})

    kept = kept_rows(batch, mask)

    kept.validate(full=True)
    assert kept.schema.equals(batch.schema)
    assert kept.equals(batch.filter(pa.array(mask)))
