"""What a snapshot build is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from memwal_core.jobs.request import INDEXES_ASSET, JobInfo, JobRequest
from memwal_core.jobs.sharing.place import Engine, engine_field

if TYPE_CHECKING:
    from memwal_core.jobs.snapshot.report import SnapshotReport

_GUIDE = """
### Publish a snapshot of a table's regions

Readers learn from the snapshot which regions and flushed MemTables there are, without listing the store. It starts by
itself after each index catch-up.

**When is it safe?** Always. A reader that finds an old snapshot, or none, reads the region manifests instead. If
nothing has changed, the run is *skipped*.

**What do failures mean?** Conflicts and storage failures are tried again. A region that cannot be read fails the run
and leaves the present snapshot in place: see `docs/runbooks/corrupt-region-manifest.md`.
"""


class SnapshotRequest(JobRequest):
    """Publish a snapshot of all regions for readers, and raise their WAL hints.

    Attributes:
        force: Publish even if nothing has changed.
        engine: Where regions are surveyed.
    """

    info: ClassVar[JobInfo[SnapshotReport]] = JobInfo(
        name="snapshot",
        summary="Publish a snapshot of all regions for readers.",
        implementation="memwal_core.jobs.snapshot.job:SnapshotJob",
        runbook="docs/runbooks/snapshot-age.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 conflict or storage failure (try again), 5 a region cannot be read, "
        "6 damaged regions were left out, 8 the table is frozen",
        started_by=(INDEXES_ASSET,),
    )

    force: bool = Field(default=False, title="Force", description="Publish even if nothing has changed.")
    engine: Engine = engine_field()
