"""Region snapshots."""

from __future__ import annotations

from airflow.sdk import Param

from memwal_airflow.assets import INDEXES
from memwal_airflow.params import dry_run_param
from memwal_airflow.steps import Step, build

DOC = """
### Publish a snapshot of a table's regions

Readers learn from the snapshot which regions and flushed MemTables there are, without listing the store. It starts by
itself after each index catch-up.

**When is it safe?** Always. A reader that finds an old snapshot, or none, reads the region manifests instead. If
nothing has changed, the run is *skipped*.

**What do failures mean?** Conflicts and storage failures are tried again. A region that cannot be read fails the run
and leaves the present snapshot in place: see `docs/runbooks/corrupt-region-manifest.md`.
"""

dag = build(
    Step(
        job="snapshot",
        description="Publish a snapshot of all regions for readers.",
        doc=DOC,
        schedule=[INDEXES],
        params={
            "dry_run": dry_run_param(),
            "force": Param(False, type="boolean", title="Force", description="Publish even if nothing has changed."),
        },
    )
)
