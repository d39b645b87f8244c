"""A merge in a process of its own that tells its peak memory."""

from __future__ import annotations

import sys

from memwal_core.jobs.memory import peak_memory_bytes
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.settings import MIB, MergeSettings, Settings
from memwal_core.table import Table

if __name__ == "__main__":
    uri, max_mib = sys.argv[1:]
    bounds = MergeSettings(max_bytes=int(max_mib) * MIB, batch_bytes=4 * MIB)
    report = Table.open(uri, settings=Settings(merge=bounds)).run(MergeRequest())
    rows = sum(commit.upserts for commit in report.commits)
    print(report.outcome.value, len(report.commits), rows, peak_memory_bytes() // MIB, report.leftovers, flush=True)
