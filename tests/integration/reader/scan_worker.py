"""Scans a table in a process of its own and prints rows, peak growth in MiB and the largest batch."""

from __future__ import annotations

import resource
import sys

from memwal_core.reader.scan import ScanRequest
from memwal_core.table import MemWalTable

KIB_PER_MIB = 1024


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MIB


def main(uri: str) -> None:
    table = MemWalTable.open(uri)
    table.to_arrow(ScanRequest(columns=("id",), limit=1))  # Libraries are loaded, threads started.
    before = _peak_mib()
    rows = largest = 0
    for batch in table.scan().batches():
        rows += batch.num_rows
        largest = max(largest, batch.num_rows)
    print(rows, round(_peak_mib() - before), largest)


if __name__ == "__main__":
    main(sys.argv[1])
