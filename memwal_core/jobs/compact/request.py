"""What a compaction is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from memwal_core.jobs.request import JobInfo, JobRequest
from memwal_core.jobs.sharing.place import Engine, engine_field

if TYPE_CHECKING:
    from memwal_core.jobs.compact.report import CompactReport

_GUIDE = """
### Rewrite small and half deleted fragments of a base table

Merges leave small fragments and deleted rows behind. This job rewrites neighbours into large fragments, with the
indexes caught up before and after, and can then remove old versions.

**When is it safe?** Beside writers and merges: always; the job that commits second plans anew. `remove_versions` ends
queries and jobs that still read a version older than the retention; that is why it is off unless it is asked for.
With nothing worth rewriting, the run is *skipped*.

**What do failures mean?** Conflicts and storage failures are tried again. A rewrite that would lose rows is refused and
needs a person: stop all jobs of the table and see `docs/runbooks`.
"""


class CompactRequest(JobRequest):
    """Rewrite small and half deleted fragments, with the indexes caught up before and after.

    Attributes:
        force: Rewrite small neighbours however few they are.
        remove_versions: Then remove versions older than ``settings.compact.retention_s`` that nothing needs.
        engine: Where fragments are rewritten.
    """

    info: ClassVar[JobInfo[CompactReport]] = JobInfo(
        name="compact",
        summary="Rewrite small and half deleted fragments of the base table.",
        implementation="memwal_core.jobs.compact.job:CompactJob",
        runbook="docs/runbooks/base-fragments.md",
        guide=_GUIDE,
    )

    force: bool = Field(
        default=False, title="Force", description="Rewrite small neighbouring fragments however few they are."
    )
    remove_versions: bool = Field(
        default=False,
        title="Remove old versions",
        description="Then remove versions older than MEMWAL_COMPACT__RETENTION_S that nothing needs.",
    )
    engine: Engine = engine_field()
