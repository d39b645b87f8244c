"""What a merge is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, model_validator

from memwal_core.jobs.request import BASE_TABLE_ASSET, JobInfo, JobRequest, Regions, SuiteFiles
from memwal_core.jobs.sharing.place import Engine, engine_field
from memwal_core.settings.bounds import Count

if TYPE_CHECKING:
    from memwal_core.jobs.merge.report import MergeReport

_GUIDE = """
### Merge the flushed MemTables of one table into its base table

Writers leave flushed MemTables behind. This job brings them into the base table, in the order in which they were
written, and records how far it came in the same commit as the rows.

| Task | What it does |
|---|---|
| `plan` | reads the table and logs a verdict for every region; divides the work. Changes nothing |
| `hold` | takes the lease of the table's merge for this run; waits while another run has it |
| `work` | one task per entry of the plan, one at a time: in the worker what is small, else as a Spark job |
| `verify` | reads the table anew: the planned progress is recorded, every primary key occurs once |
| `release` | gives the lease back, whatever happened |

A merge that changed the table starts the index catch-up.

**When is it safe?** Always. Writers go on writing. Running it twice is a no-op that says so: `work` and `verify` are
then *skipped*. Stopping it in the middle loses nothing, what is committed stays, and the next run goes on from there.

**What do failures mean?**

| Exit code of the job | Meaning | What happens |
|---|---|---|
| 2 | wrong input | fails at once; correct the parameters |
| 4 | conflict with another writer of the base table, or storage did not answer | tried again, with growing waits |
| 5 | a region needs a person (a generation is missing), or the lease is lost | fails at once; see `docs/runbooks` |

**Never** delete anything below `_mem_wal/` by hand, and start no second writer to get a region going.

**It needs** `memwal_core` where tasks run; what is not small also the Spark connection `spark_default`, and
`memwal_core` where drivers and executors run.
"""


class MergeRequest(JobRequest):
    """Merge flushed MemTables into the base table until none is left.

    Attributes:
        regions: Only these; empty = all.
        max_bytes: Arrow bytes per commit instead of ``settings.merge.max_bytes``; the first generation is always taken.
        engine: Where rows are prepared; ``auto``: on executors from ``settings.merge.executors_min_bytes``.
        due_only: Only regions of which a trigger fires: generations, bytes or age (``settings.merge_triggers``).
        leave_held: Count regions with held flushed MemTables like damaged ones: left out, and no failure.
        audited_only: Only flushed MemTables that the last audit by ``suites`` saw; the rest waits for the next one.
        suites: Files of the suites of that audit.
    """

    info: ClassVar[JobInfo[MergeReport]] = JobInfo(
        name="merge",
        summary="Merge a table's flushed MemTables into its base table, in order and exactly once.",
        implementation="memwal_core.jobs.merge.job:MergeJob",
        runbook="docs/runbooks/pending-generations.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 another merge runs, conflict or storage failure (try again), "
        "5 a region needs a person, 6 damaged regions were left out, 8 the table is frozen",
        changes=BASE_TABLE_ASSET,
    )

    regions: Regions = ()
    max_bytes: Count | None = Field(
        default=None,
        ge=1,
        title="Bytes per commit",
        description="Arrow bytes of flushed MemTables that one commit, and one Spark job, takes on; the first is "
        "always taken. Less needs less memory. Empty: MEMWAL_MERGE__MAX_BYTES, by default 1 GiB.",
        # Forms refuse what is a slip of units; nothing else depends on these bounds.
        json_schema_extra={"section": "Bounds", "minimum": 1 << 20, "maximum": 1 << 40},
    )
    due_only: bool = Field(
        default=False,
        title="Due regions only",
        description="Only regions of which a trigger fires: generations, bytes or age.",
        json_schema_extra={"section": "Bounds"},
    )
    leave_held: bool = Field(
        default=False,
        title="Leave held regions",
        description="Regions with held flushed MemTables are left out like damaged ones, and that is no failure of the "
        "run: the signal tells people of them. So in a table's cycle.",
        json_schema_extra={"section": "Bounds"},
    )
    audited_only: bool = Field(
        default=False,
        title="Audited only",
        description="Only flushed MemTables that the last audit saw (`memwal quality --stage before`); what was "
        "flushed later waits for the next one. So in a table's cycle with mandatory checks.",
        json_schema_extra={"section": "Bounds"},
    )
    suites: SuiteFiles = Field(
        default=(),
        title="Suites",
        description="Files of the suites, .json or .py, that the audit has run. Only with audited only.",
        json_schema_extra={"section": "Bounds", "uniqueItems": True},
    )
    engine: Engine = engine_field()

    @model_validator(mode="after")
    def _suites_of_an_audit(self) -> Self:
        if self.suites and not self.audited_only:
            raise ValueError("suites are those of an audit: ask for audited only, or leave them out")
        return self
