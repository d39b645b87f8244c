"""A merge in a process of its own that tells its peak memory."""

from __future__ import annotations

import resource
import sys

from memwal_core.admin import TableAdmin
from memwal_core.settings import MIB, MergeSettings, Settings

if __name__ == "__main__":
    uri, strategy, max_mib = sys.argv[1:]
    bounds = MergeSettings(strategy=strategy, max_bytes=int(max_mib) * MIB, batch_bytes=4 * MIB)
    report = TableAdmin.open(uri, settings=Settings(merge=bounds)).merge()
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = sum(commit.upserts for commit in report.commits)
    print(report.outcome.value, len(report.commits), rows, peak_kib // 1024, report.leftovers, flush=True)
