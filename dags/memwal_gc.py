"""Garbage collection."""

from __future__ import annotations

import os

from airflow.sdk import Param

from memwal_spark_jobs import DRY_RUN, INDEXES
from memwal_steps import Step, build

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
            "dry_run": Param(True, type="boolean", title="Dry run", description=DRY_RUN),
            "regions": Param(
                [],
                type="array",
                items={"type": "string", "pattern": "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
                uniqueItems=True,
                title="Regions",
                description="Region ids, one per line. Empty: all regions.",
                section="Bounds",
            ),
        },
    )
)
