"""A scan holds keys and a few batches, however large the base table is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

from memwal_core.base_table import BaseTable
from memwal_core.region_spec import bucket_spec
from memwal_core.testing.tables import PRIMARY_KEY_METADATA
from memwal_core.writer.table_writer import TableWriter

ROWS = 1_000_000
UPDATED = 50_000
WORKER = Path(__file__).with_name("scan_worker.py")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        *(pa.field(f"v{number}", pa.int64()) for number in range(31)),
    ]
)


def _rows(ids: np.ndarray) -> pa.Table:
    return pa.table([ids, *(ids + number for number in range(31))], schema=SCHEMA)


@pytest.mark.slow
@pytest.mark.req("RD-58")
def test_scan_of_a_million_rows_takes_a_fraction_of_their_size(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    batches = (_rows(np.arange(start, start + 50_000)).to_batches()[0] for start in range(0, ROWS, 50_000))
    lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, batches), uri, max_rows_per_file=250_000)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])
    with TableWriter.open(table) as writer:
        for number in range(4):
            writer.put(_rows(np.arange(number, ROWS, ROWS // UPDATED * 4)))
            writer.flush()
    size_mib = ROWS * len(SCHEMA) * 8 / 2**20
    finished = subprocess.run(
        [sys.executable, str(WORKER), uri], capture_output=True, text=True, check=True, timeout=150
    )
    rows, growth_mib, largest = map(int, finished.stdout.split())

    assert rows == ROWS
    assert growth_mib < size_mib / 2, f"{growth_mib} MiB for a table of {size_mib:.0f} MiB"
    assert largest <= 65_536
