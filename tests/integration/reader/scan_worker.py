"""Scans a table in a process of its own and prints rows, peak growth in MiB and the largest batch."""

from __future__ import annotations

import sys

from memwal_core.jobs.memory import peak_memory_bytes
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.settings import MIB
from memwal_core.table import Table


def main(uri: str) -> None:
    table = Table.open(uri)
    table.to_arrow(ScanRequest(columns=("id",), limit=1))  # Libraries are loaded, threads started.
    before = peak_memory_bytes()
    rows = largest = 0
    for batch in table.scan().batches():
        rows += batch.num_rows
        largest = max(largest, batch.num_rows)
    print(rows, (peak_memory_bytes() - before) // MIB, largest)


if __name__ == "__main__":
    main(sys.argv[1])
