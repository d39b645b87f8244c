"""What a relocation is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from memwal_core.jobs.request import JobInfo, JobRequest

if TYPE_CHECKING:
    from memwal_core.jobs.relocate.report import RelocateReport

_GUIDE = """
### Make a table whole that was copied or moved

Run it at the new address after `cp -r`, `mv`, `aws s3 sync`, or a bucket replica has taken over
([copies](copies.md)). It reads every WAL entry that a flushed MemTable names by its address, and proves that the
entries here are those that were flushed. Only if all are, it gives flushed MemTables the present address, so that
readers of pylance and LanceDB find their own files, makes this address the only one in the maintenance record, and ends
the freeze `address-changed`, as `memwal thaw --choice accept-copy` would.

Not for a table that is mounted twice: `memwal thaw --choice accept-address` keeps both addresses.

**When is it safe?** Beside writers and readers. Nothing is changed if anything is wrong. A second run finds nothing to
do; a run that was killed can be repeated.

**What do failures mean?** Exit code 5: a manifest, a WAL entry, a flushed MemTable or a file of the base table is
missing, damaged or not what was written, as in a copy that was made while writers or jobs worked (copy the table
again), or the table is frozen for another cause; the report names each. Nothing was changed.
"""


class RelocateRequest(JobRequest):
    """Make a copied or moved table whole at its present address, after proving that its files are its own.

    Attributes:
        reason: Why, for the record of the freeze that ends.
    """

    info: ClassVar[JobInfo[RelocateReport]] = JobInfo(
        name="relocate",
        summary="Make a copied or moved table whole at its present address.",
        implementation="memwal_core.jobs.relocate.job:RelocateJob",
        runbook="docs/runbooks/address-changed.md",
        guide=_GUIDE,
        exit_codes="3 nothing to relocate, 4 conflict or storage failure (try again), 5 it needs a person",
        acts_on_frozen=True,
        by_hand=True,
    )

    reason: str = Field(default="", title="Reason", description="Why, for the history.")
