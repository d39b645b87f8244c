"""What a clone is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from memwal_core.jobs.backup.request import CopyRequest
from memwal_core.jobs.request import JobInfo

if TYPE_CHECKING:
    from memwal_core.jobs.backup.report import CopyReport

_GUIDE = """
### Make a second table of a table

Copies one moment as `memwal backup` does, and gives the copy an identity of its own: another id of the MemWAL index,
writer epochs that no writer of the original can have, and a new maintenance record with TARGET as its only address. It
can be written and maintained at once, beside the original ([copies](copies.md)).

Should the two directories ever be exchanged, writers of the one are fenced at the other, and jobs freeze.

**When is it safe?** As a backup.

**What do failures mean?** As of a backup.
"""


class CloneRequest(CopyRequest):
    """Make a second table of a table, with an identity of its own."""

    info: ClassVar[JobInfo[CopyReport]] = JobInfo(
        name="clone",
        summary="Copy one moment of a table as another table of its own.",
        implementation="memwal_core.jobs.clone.job:CloneJob",
        runbook="docs/copies.md",
        guide=_GUIDE,
        exit_codes="3 the clone is complete already, 4 conflict or storage failure (try again), 5 it needs a person, "
        "8 the table is frozen",
        by_hand=True,
    )
