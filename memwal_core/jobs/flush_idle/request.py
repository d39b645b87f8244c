"""What a flush of idle regions is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.jobs.request import REGIONS_ASSET, Flag, JobInfo, JobRequest, Regions

if TYPE_CHECKING:
    from memwal_core.jobs.flush_idle.report import FlushReport

_GUIDE = """
### Flush rows that their writer left in the WAL

Rows reach the base table only after they were flushed, and only a region's writer flushes. This job does it for
writers that are gone: it claims the region, replays its WAL, records a flushed MemTable and gives the region back. The
next merge takes it on.

**Which writers are gone?** One that closed its region. One of ours that was silent for an hour although it held
unflushed rows: a living one would have flushed them. One of another program (pylance, LanceDB) that was silent for
seven days: such a writer leaves no other sign. The settings `MEMWAL_FLUSH__*` change these times.

**When is it safe?** Without **Fence**: a living writer is left alone, and the report says why. With **Fence**, every
region with unflushed rows is taken from its writer. A fenced writer loses no acknowledged row, but refuses every write
until it is opened again.

**What do failures mean?** Conflicts and storage failures are tried again. A WAL that cannot be replayed needs a person,
and its rows stay where they are: see `docs/runbooks/wal-lag.md`.
"""


class FlushRequest(JobRequest):
    """Flush rows that wait in the WAL of a writer that is gone.

    A region whose writer shows signs of life is left alone unless --fence is given.

    Attributes:
        regions: Only these; empty = all.
        fence: Take regions from living writers, too.
        due_only: Leave rows alone that have not waited for ``flush.min_age_s``.
    """

    info: ClassVar[JobInfo[FlushReport]] = JobInfo(
        name="flush",
        summary="Flush rows that wait in the WAL of a writer that is gone.",
        implementation="memwal_core.jobs.flush_idle.job:FlushJob",
        runbook="docs/runbooks/wal-lag.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do or every writer seems alive, 4 conflict or storage failure (try again), 5 a WAL "
        "cannot be replayed, 6 the same in a cycle, 8 the table is frozen",
        changes=REGIONS_ASSET,
    )

    regions: Regions = ()
    fence: Annotated[bool, Flag("--fence")] = Field(
        default=False,
        title="Fence",
        description="Flush regions whose writer may be alive, too. It must be opened again afterwards; no "
        "acknowledged row is lost.",
    )
    due_only: Annotated[bool, Flag("--due-only")] = Field(
        default=False,
        title="Due only",
        description="Leave rows alone that have waited for less than MEMWAL_FLUSH__MIN_AGE_S (by default 10 minutes).",
    )
