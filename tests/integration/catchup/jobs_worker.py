"""A process that builds snapshots, catches up and compacts in turn until it is killed."""

from __future__ import annotations

import sys

import memwal_core.base_table.version_catalog  # noqa: F401 - imported before it is ready, not at the first commit
from memwal_core.admin import CatchupRequest, CompactRequest, SnapshotRequest, TableAdmin
from memwal_core.errors import ConflictError

if __name__ == "__main__":
    admin, holder = TableAdmin.open(sys.argv[1]), sys.argv[2]
    print("ready", flush=True)
    while True:
        try:
            admin.build_snapshot(SnapshotRequest(force=True, holder=holder))
            admin.catch_up(CatchupRequest(holder=holder))
            admin.compact(CompactRequest(force=True, holder=holder))
        except ConflictError:
            print("conflict", flush=True)
