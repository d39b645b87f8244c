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
from memwal_core.base_table.reading.read_sizes import BATCH_BYTES
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.region.spec import bucket_spec
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import PRIMARY_KEY_METADATA

ROWS = 1_500_000
UPDATED = 50_000
"""As many in a table of any size."""
PIECE = 12_500
FRAGMENT = 125_000
WORKER = Path(__file__).with_name("scan_worker.py")
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=PRIMARY_KEY_METADATA),
        *(pa.field(f"v{number}", pa.int64()) for number in range(31)),
    ]
)


def _rows(ids: np.ndarray) -> pa.Table:
    return pa.table([ids, *(ids + number for number in range(31))], schema=SCHEMA)


def _scanned(uri: str, rows: int) -> tuple[int, int]:
    """Return peak growth of a process that scans a new table, in MiB, and its largest batch."""
    batches = (_rows(np.arange(start, start + PIECE)).to_batches()[0] for start in range(0, rows, PIECE))
    lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, batches), uri, max_rows_per_file=FRAGMENT)
    table = BaseTable.open(uri)
    table.create_mem_wal_index([bucket_spec(1, "id", table.state().field_ids, 2)])
    with TableWriter.open(table) as writer:
        for number in range(4):
            writer.put(_rows(np.arange(number, rows, rows // UPDATED * 4)))
            writer.flush()
    finished = subprocess.run(
        [sys.executable, str(WORKER), uri], capture_output=True, text=True, check=True, timeout=300
    )
    found, growth_mib, largest = map(int, finished.stdout.split())
    assert found == rows
    return growth_mib, largest


@pytest.mark.req("RD-58")
def test_memory_of_a_scan_does_not_grow_with_the_base_table(tmp_path: Path) -> None:
    small, _ = _scanned(str(tmp_path / "small"), ROWS // 4)
    large, largest = _scanned(str(tmp_path / "large"), ROWS)
    size_mib = ROWS * len(SCHEMA) * 8 / 2**20

    assert large < size_mib / 2, f"{large} MiB for a table of {size_mib:.0f} MiB"
    assert large - small < size_mib * 3 / 4 / 4, f"{small} MiB, and {large} MiB for four times the rows"
    assert largest <= 65_536


@pytest.mark.req("RD-58")
def test_scan_reads_a_few_wide_rows_at_once(tmp_path: Path) -> None:
    """Lance reads 8,192 rows at once: of texts of a megabyte each, a batch took the memory of the whole table."""
    uri, wide, rows = str(tmp_path / "wide"), 64 * 1024, 600
    schema = pa.schema([SCHEMA.field("id"), pa.field("data", pa.binary())])
    data = [np.random.default_rng(number).bytes(wide) for number in range(rows)]
    lance.write_dataset(pa.table({"id": range(rows), "data": data}, schema=schema), uri)
    base = BaseTable.open(uri)
    base.create_mem_wal_index([bucket_spec(1, "id", base.state().field_ids, 2)])

    def largest(request: ScanRequest) -> int:
        return max(batch.num_rows for batch in Table.open(uri).scan(request).batches())

    assert largest(ScanRequest()) <= BATCH_BYTES // wide
    assert largest(ScanRequest(batch_rows=7)) <= 7
    assert largest(ScanRequest(columns=("id",))) == rows
