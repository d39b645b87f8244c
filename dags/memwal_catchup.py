"""Index catch-up: one task per index."""

from __future__ import annotations

from airflow.sdk import Param

from memwal_airflow.assets import BASE_TABLE, INDEXES
from memwal_airflow.params import dry_run_param
from memwal_airflow.steps import Step, build

DOC = """
### Extend the indexes of a table over what was merged

A merge adds rows that no index knows yet; until the indexes catch up, flushed MemTables cannot be deleted. This DAG
extends each index that is behind, one task per index, and records how far it is. It starts by itself after each merge.

| Task | What it does |
|---|---|
| `plan` | logs where every index stands. Changes nothing |
| `hold` | takes the lease of each index for this run |
| `work` | extends one index; nothing is trained anew |
| `verify` | reads the table anew: no index is behind, unless somebody has changed the table meanwhile |
| `release` | gives the leases back |

**When is it safe?** Always, also beside merges and writers. With nothing to do, the run is *skipped*. An index that
fails stays behind and harms nobody; the others go on.

**What do failures mean?** Conflicts and storage failures are tried again with growing waits. A lost lease and a missing
index are not: see `docs/runbooks`.
"""

dag = build(
    Step(
        job="catchup",
        description="Extend base table indexes over merged rows, one task per index.",
        doc=DOC,
        schedule=[BASE_TABLE],
        outlet=INDEXES,
        params={
            "dry_run": dry_run_param(),
            "indexes": Param(
                [],
                type="array",
                items={"type": "string", "minLength": 1},
                uniqueItems=True,
                title="Indexes",
                description="Names, one per line. Empty: all indexes that are behind.",
            ),
            "merge_segments": Param(
                False,
                type="boolean",
                title="Merge segments",
                description="Make one segment of each index, which takes longer and makes queries faster.",
            ),
        },
    )
)
