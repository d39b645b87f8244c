"""A process that builds snapshots, one after another, as often as it is told."""

from __future__ import annotations

import sys

from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.table import Table

if __name__ == "__main__":
    admin = Table.open(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        print(admin.run(SnapshotRequest(force=True), holder=f"build {number}").outcome.value, flush=True)
