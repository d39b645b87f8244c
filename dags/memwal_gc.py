"""Garbage collection."""

from __future__ import annotations

import os

from airflow.sdk import Param

from memwal_airflow.assets import INDEXES
from memwal_airflow.params import dry_run_param, regions_param
from memwal_airflow.steps import Step, build

DOC = """
### Delete what nobody needs any more

Flushed MemTables stay until they are merged, every index covers them and no retained version needs them; leftovers of
failed writes stay until nothing can refer to them. This DAG lists all of that with the reason for each, and deletes
only when **Dry run** is switched off. After each index catch-up it starts by itself and only plans.

| Task | What it does |
|---|---|
| `plan` | logs what would be freed, and what holds the rest. Changes nothing |
| `approve` | only if `MAINTENANCE_GC_APPROVAL=true`: a person agrees or rejects |
| `hold`, `work`, `release` | delete under a lease that is checked before every deletion |
| `verify` | looks at everything anew: nothing is damaged, and what is due again |

A flushed MemTable is first removed from the manifest of its region. Readers that planned before have the grace period
to finish; only then its directory is deleted, by a later run or, with **Wait**, by the same one: `work` is *deferred*
meanwhile, takes no worker, keeps its lease, and ends at once if it loses that. Runs of this DAG queue behind it.

**When is it safe?** A dry run: always. Deleting: as soon as no job has reported a corruption of this table; on any
doubt the job deletes nothing and says why. With nothing to free, the run is *skipped*.

**Never** delete anything below `_mem_wal/` by hand, whatever the page of free space says: see `docs/runbooks`.
"""

dag = build(
    Step(
        job="gc",
        description="List what nobody needs any more, and delete it when asked to.",
        doc=DOC,
        schedule=[INDEXES],
        approval=os.environ.get("MAINTENANCE_GC_APPROVAL", "").lower() == "true",
        params={
            "dry_run": dry_run_param(default=True),
            "wait": Param(
                False,
                type="boolean",
                title="Wait",
                description="Wait for the grace period (MEMWAL_GC__GRACE_S, by default 10 minutes) of what this run "
                "removes from manifests, without a worker, and delete that, too. Off: a later run does.",
            ),
            "regions": regions_param(),
        },
    )
)
