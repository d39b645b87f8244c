"""A merge process for the kill tests: says when it is ready, merges when told, may die at any time."""

from __future__ import annotations

import sys

import memwal_core.base_table.version_catalog  # noqa: F401 - a commit imports it, which takes longer than some live here
from memwal_core.admin import MergeRequest, TableAdmin
from memwal_core.maintenance.outcome import no_lease
from memwal_core.settings import MergeSettings, Settings

if __name__ == "__main__":
    bounds = MergeSettings(max_generations=int(sys.argv[2]), strategy=sys.argv[3], max_attempts=50)
    settings = Settings(merge=bounds)
    admin = TableAdmin.open(sys.argv[1], settings=settings)
    print("ready", flush=True)
    sys.stdin.readline()
    # Without a lease: workers meet as rivals, and one that is killed must not keep the next from merging.
    print(admin.merge(MergeRequest(check_lease=no_lease)).outcome.value, flush=True)
