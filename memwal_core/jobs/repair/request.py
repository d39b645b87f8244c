"""What a repair is asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from memwal_core.ids import parse_region_id
from memwal_core.jobs.repair.plan import AcceptedLosses
from memwal_core.jobs.request import Flag, JobInfo, JobRequest, Regions

if TYPE_CHECKING:
    from memwal_core.jobs.repair.report import RepairReport

_GUIDE = """
### Make a damaged table whole again

Looks for what this job can mend, prints each step with its evidence, keeps a copy of everything it touches in
`_mem_wal_repair/` beside `_mem_wal/`, acts, and looks again. Start with a dry run.

- A torn newest manifest of the base table is set aside.
- A flushed MemTable that is damaged or gone is written anew: from the WAL entries of its range, or from its own data
  files if those are whole.
- With `duplicates`, surplus copies of keys in the base table are removed where the history of the table proves which
  copy is the newest.
- With `accept_loss`, a generation that nothing can rebuild is given up: what is left of it stays, and the copy says
  which keys are gone as far as that is known. The same for unflushed WAL entries that cannot be read: an entry without
  rows takes the place of each, so that the region's other rows can be flushed.

**When is it safe?** Beside writers and other jobs: every change is a compare-and-swap, and a region is taken from its
writer only where WAL entries are given up. Rows are given up or removed only by the two options that say so. A second
run finds nothing to do; a run that was killed can be repeated.

**What do failures mean?** Exit code 5: something is left that only a person can decide; the report names it and the
command that would decide it. Conflicts and storage failures: run again.
"""

_LOSS = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}:(wal-)?[1-9][0-9]{0,19}")
_ENTRY = "wal-"


def _loss(text: str) -> str:
    if not _LOSS.fullmatch(text):
        raise ValueError("write REGION:GENERATION or REGION:wal-ENTRY, with the whole id of the region")
    return text


AcceptedLoss = Annotated[str, AfterValidator(_loss)]
"""A region and one of its generations or WAL entries: ``6f9619ff-8b86-4011-b42d-00c04fc964ff:3`` or ``...:wal-3``."""


class RepairRequest(JobRequest):
    """Make a damaged table whole again, with a copy of everything that is touched.

    Attributes:
        regions: Only these; all if empty. The base table is looked at in any case.
        duplicates: Also count the keys of the base table, and remove surplus copies that are provably older.
        accept_loss: Generations and WAL entries whose rows may be given up as far as nothing can rebuild them.
    """

    info: ClassVar[JobInfo[RepairReport]] = JobInfo(
        name="repair",
        summary="Rebuild damaged flushed MemTables, set torn manifests aside, remove duplicate keys.",
        implementation="memwal_core.jobs.repair.job:RepairJob",
        runbook="docs/repair.md",
        guide=_GUIDE,
        exit_codes="3 nothing to repair, 4 conflict or storage failure (try again), 5 it needs a person",
        acts_on_frozen=True,
        mends_damage=True,
        by_hand=True,
    )

    regions: Regions = ()
    duplicates: bool = Field(
        default=False,
        title="Duplicate keys",
        description="Also remove surplus copies of keys from the base table, where it is proven which copy is newest.",
    )
    accept_loss: Annotated[
        tuple[AcceptedLoss, ...],
        Flag("--accept-loss", "REGION:GENERATION|REGION:wal-ENTRY"),
        Field(
            title="Accept loss",
            description="Give up the rows of this generation, or of this unflushed WAL entry, as far as nothing can "
            "rebuild them. For an entry, the region is taken from its writer.",
            json_schema_extra={"uniqueItems": True},
        ),
    ] = ()

    @property
    def losses(self) -> AcceptedLosses:
        """What may be given up."""
        parts = [each.partition(":") for each in self.accept_loss]
        named = [(parse_region_id(region), what) for region, _, what in parts]
        return AcceptedLosses(
            frozenset((region, int(what)) for region, what in named if not what.startswith(_ENTRY)),
            frozenset((region, int(what.removeprefix(_ENTRY))) for region, what in named if what.startswith(_ENTRY)),
        )
