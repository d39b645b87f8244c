"""What a lookup reads grows with its keys, not with the rows of the table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.reader.rows.by_key import rows_with_keys
from testkit.tables.people import PRIMARY_KEY_METADATA

ROWS = 100_000
FRAGMENTS = 10
FLOATS = 64
KEY_COLUMN_BYTES = 264_000
"""Numbers below 100,000 are stored in 17 bits, and every fragment has some metadata."""

BYTES_AROUND_A_ROW = 2_048
"""Lance joins reads that lie close together; a row itself has 256 bytes."""


@dataclass(frozen=True, slots=True)
class _Cost:
    requests: int
    bytes_read: int


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of one table per index on the key; of ``partial``, a tenth of the rows is not indexed."""
    rng = np.random.default_rng(5)
    key = pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA)
    schema = pa.schema([key, pa.field("vec", pa.list_(pa.float32(), FLOATS))])
    floats = pa.array(rng.random(ROWS * FLOATS, dtype=np.float32))
    rows = pa.Table.from_arrays(
        [pa.array(rng.permutation(ROWS).astype(np.int64)), pa.FixedSizeListArray.from_arrays(floats, FLOATS)],
        schema=schema,
    )
    root = tmp_path_factory.mktemp("lookups")
    indexed = ROWS - ROWS // FRAGMENTS
    for name in ("none", "BTREE", "partial"):
        uri = str(root / name)
        lance.write_dataset(rows.slice(0, indexed), uri, max_rows_per_file=ROWS // FRAGMENTS)
        if name != "none":
            lance.dataset(uri).create_scalar_index("id", "BTREE")
        lance.write_dataset(rows.slice(indexed), uri, mode="append")
        if name == "BTREE":
            lance.dataset(uri).optimize.optimize_indices()
    return root


def _cost(uri: Path, keys: int) -> _Cost:
    dataset = lance.dataset(str(uri))
    wanted = np.random.default_rng(keys).choice(ROWS, keys, replace=False).astype(np.int64)
    dataset.io_stats_incremental()
    found = rows_with_keys(dataset, pa.table({"id": wanted}), ["id"], ["id", "vec"])
    assert sorted(found.column("id").to_pylist()) == sorted(wanted.tolist())
    stats = dataset.io_stats_incremental()
    return _Cost(stats.read_iops, stats.read_bytes)


@pytest.mark.parametrize("keys", [1, 100, 1000, 1001, 10_000])
@pytest.mark.parametrize("index", ["none", "BTREE", "partial"])
def test_p4_a_lookup_reads_the_key_column_and_the_rows_that_it_returns(tables: Path, index: str, keys: int) -> None:
    """From 1,001 keys on, and wherever the index lacked a fragment, all columns of all rows were read."""
    cost = _cost(tables / index, keys)

    assert cost.requests <= 3 * FRAGMENTS + keys
    assert cost.bytes_read <= KEY_COLUMN_BYTES + keys * BYTES_AROUND_A_ROW


@pytest.mark.parametrize(("index", "requests", "bytes_read"), [("BTREE", 10, 40_000), ("partial", 13, 66_000)])
def test_p4_a_key_is_found_by_the_index(tables: Path, index: str, requests: int, bytes_read: int) -> None:
    """Where the index lacks a fragment, its key column is read, and nothing else."""
    cost = _cost(tables / index, 1)

    assert cost.requests <= requests
    assert cost.bytes_read <= bytes_read
