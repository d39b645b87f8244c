"""A merge in a process of its own that tells its peak memory."""

from __future__ import annotations

import sys

from memwal_core.admin import TableAdmin
from memwal_core.maintenance.memory import peak_memory_bytes
from memwal_core.settings import MIB, MergeSettings, Settings

if __name__ == "__main__":
    uri, strategy, max_mib = sys.argv[1:]
    bounds = MergeSettings(strategy=strategy, max_bytes=int(max_mib) * MIB, batch_bytes=4 * MIB)
    report = TableAdmin.open(uri, settings=Settings(merge=bounds)).merge()
    rows = sum(commit.upserts for commit in report.commits)
    print(report.outcome.value, len(report.commits), rows, peak_memory_bytes() // MIB, report.leftovers, flush=True)
