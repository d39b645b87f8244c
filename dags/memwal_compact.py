"""Compaction of the base table."""

from __future__ import annotations

from airflow.sdk import Param

from memwal_airflow.params import dry_run_param
from memwal_airflow.steps import Step, build

DOC = """
### Rewrite small and half deleted fragments of a base table

Merges leave small fragments and deleted rows behind. This DAG rewrites neighbours into large fragments, with the
indexes caught up before and after, and can then remove old versions.

**When is it safe?** Beside writers and merges: always; whoever commits second plans anew. `remove_versions` ends
queries and jobs that still read a version older than the retention; that is why it is off unless it is asked for.
With nothing worth rewriting, the run is *skipped*.

**What do failures mean?** Conflicts and storage failures are tried again. A rewrite that would lose rows is refused and
needs a person: stop all jobs of the table and see `docs/runbooks`.
"""

dag = build(
    Step(
        job="compact",
        description="Rewrite small and half deleted fragments of the base table.",
        doc=DOC,
        params={
            "dry_run": dry_run_param(),
            "force": Param(
                False,
                type="boolean",
                title="Force",
                description="Rewrite small neighbours however few they are.",
            ),
            "remove_versions": Param(
                False,
                type="boolean",
                title="Remove old versions",
                description="Then remove versions older than MEMWAL_COMPACT__RETENTION_S that nothing keeps.",
            ),
        },
    )
)
