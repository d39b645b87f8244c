"""What a garbage collection is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.jobs.request import INDEXES_ASSET, Flag, JobInfo, JobRequest, Regions
from memwal_core.jobs.sharing.place import Engine, engine_field

if TYPE_CHECKING:
    from memwal_core.jobs.gc.report import GcReport

_GUIDE = """
### Delete what is not needed any more

Flushed MemTables stay until they are merged, every index covers them and no retained version needs them; leftovers of
failed writes stay until nothing can refer to them. This job lists all of that with the reason for each, and deletes
only when **Dry run** is switched off. After each index catch-up it starts by itself and only plans.

| Task | What it does |
|---|---|
| `plan` | logs what would be freed, and what keeps the rest. Changes nothing. Of a table that is too large for a \
worker only a dry run, and what `approve` asks for, is planned here, by Spark |
| `approve` | only if `MAINTENANCE_GC_APPROVAL=true`: a person agrees or rejects |
| `hold`, `work`, `release` | delete under a lease that is checked before every deletion |
| `verify` | reads everything anew: nothing is damaged, and what is due again |

A flushed MemTable is first removed from the manifest of its region. Readers that planned before have the grace period
to finish; only then its directory is deleted, by a later run or, with **Wait**, by the same one: `work` is *deferred*
meanwhile, takes no worker, keeps its lease, and ends at once if it loses that. Runs of this DAG queue behind it.

**When is it safe?** A dry run: always. Deleting: as soon as no job has reported a corruption of this table; on any
doubt the job deletes nothing and says why. With nothing to free, the run is *skipped*.

**Never** delete anything below `_mem_wal/` by hand, whatever the page of free space says: see `docs/runbooks`.
"""


class GcRequest(JobRequest):
    """Collect garbage: list what is not needed any more, and delete it if that is asked for.

    Attributes:
        dry_run: Only list; nothing is deleted unless this is switched off.
        regions: Only these; empty = all.
        engine: Where regions are listed, judged and collected.
        wait: Wait for the grace period of what the run removes from manifests, and delete that, too.
    """

    info: ClassVar[JobInfo[GcReport]] = JobInfo(
        name="gc",
        summary="List what is not needed any more, and delete it when asked to.",
        implementation="memwal_core.jobs.gc.job:GcJob",
        runbook="docs/runbooks/progress-lost.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 something failed (run it again), 5 something contradicts itself and needs a "
        "person, 6 damaged regions were left out, 8 the table is frozen",
        started_by=(INDEXES_ASSET,),
        may_need_approval=True,
    )

    dry_run: Annotated[bool, Flag("--dry-run/--yes")] = Field(
        default=True, title="Dry run", description="Only list what would be deleted, and change nothing."
    )
    regions: Regions = ()
    engine: Engine = engine_field()
    wait: bool = Field(
        default=False,
        title="Wait",
        description="Wait for the grace period (MEMWAL_GC__GRACE_S, by default 10 minutes) of what this run removes "
        "from manifests, and delete that, too. Off: a later run does.",
    )
