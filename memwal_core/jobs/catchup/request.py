"""What an index catch-up is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.coordination.job_key import JobKey
from memwal_core.jobs.request import BASE_TABLE_ASSET, INDEXES_ASSET, Flag, JobInfo, JobRequest
from memwal_core.jobs.sharing.place import Engine, engine_field

if TYPE_CHECKING:
    from memwal_core.jobs.catchup.report import CatchupReport

_GUIDE = """
### Extend the indexes of a table over what was merged

A merge adds rows that no index knows yet; until the indexes catch up, flushed MemTables cannot be deleted. This job
extends each index that is behind, one task per index, and records how far it is. It starts by itself after each merge.

| Task | What it does |
|---|---|
| `plan` | logs where every index stands. Changes nothing |
| `hold` | takes the lease of each index for this run |
| `work` | extends one index; nothing is trained anew |
| `verify` | reads the table anew: no index is behind, unless another job changed the table meanwhile |
| `release` | gives the leases back |

**When is it safe?** Always, also beside merges and writers. With nothing to do, the run is *skipped*. An index that
fails stays behind and does no harm; the others go on.

**What do failures mean?** Conflicts and storage failures are tried again with growing waits. A lost lease and a missing
index are not: see `docs/runbooks`.
"""


class CatchupRequest(JobRequest):
    """Extend base table indexes over merged rows and record how far they are; nothing is trained anew.

    Attributes:
        indexes: Only these; empty = all. A run for one index holds its own lease, so that several run at once.
        merge_segments: Make one segment of each index.
        engine: Where segments are built.
    """

    info: ClassVar[JobInfo[CatchupReport]] = JobInfo(
        name="catchup",
        summary="Extend base table indexes over merged rows, one task per index.",
        implementation="memwal_core.jobs.catchup.job:CatchupJob",
        runbook="docs/runbooks/index-lag.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 conflict or storage failure (try again), 5 an index needs a person, "
        "8 the table is frozen",
        started_by=(BASE_TABLE_ASSET,),
        changes=INDEXES_ASSET,
    )

    indexes: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Flag("--index", "NAME")] = Field(
        default=(),
        title="Indexes",
        description="Only these indexes. Empty: all that are behind.",
        json_schema_extra={"uniqueItems": True},
    )
    merge_segments: bool = Field(
        default=False,
        title="Merge segments",
        description="Make one segment of each index, which takes longer and makes queries faster.",
    )

    engine: Engine = engine_field()

    @property
    def key(self) -> JobKey:
        """One index has a lease of its own."""
        names = set(self.indexes)
        return JobKey.of_index(self.info.name, self.indexes[0]) if len(names) == 1 else super().key
