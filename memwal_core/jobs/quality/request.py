"""What the data-quality checks are asked for."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.coordination.job_key import JobKey
from memwal_core.jobs.request import BASE_TABLE_ASSET, Grant, JobInfo, JobRequest, SuiteFiles
from memwal_core.settings.bounds import Count

if TYPE_CHECKING:
    from memwal_core.quality.model import QualityReport

_GUIDE = """
### Check the data of a table before and after merges

| Task | What it does |
|---|---|
| `plan` | reads the table and logs what there is to check. Changes nothing |
| `work` | one Spark job per table and stage; Great Expectations judges what executors read |
| `verify` | logs every check; fails if one failed, with the address of the runbook |

**Before a merge** the flushed MemTables are audited: schema, complete keys, rows that belong to another region, and
your own suites. One that fails is *held*: merges leave it and what follows it in its region, and go on everywhere else,
until it is repaired or released with `memwal checks --release`. Where the table's entry says `checks = "mandatory"`,
merges take only what an audit has seen; what is flushed after it waits for the next one. **After a merge** the base
table is checked: every key once, the number of rows, deleted keys gone, indexes that answer like a scan. This stage
starts by itself after each merge that changed a table.

**When is it safe?** Always: rows are never changed. Checks after a merge that run *during* the next one may report row
counts that are about to become right; run them again before you act.

**What do failures mean?** Wrong input fails at once. Storage failures are tried again. A failed `verify` needs a
person: see `docs/runbooks/quarantined-generations.md` and `docs/runbooks/check-failed.md`.
"""


class Stages(StrEnum):
    """Which checks: of flushed MemTables before a merge, of the base table after it, or both."""

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"


class QualityGate(StrEnum):
    """What the checks do in a table's cycle: nothing, report what they find, or hold back what fails."""

    OFF = "off"
    ADVISORY = "advisory"
    MANDATORY = "mandatory"


class QualityRequest(JobRequest):
    """Check flushed MemTables before a merge, or the base table after it.

    Attributes:
        stage: Which checks.
        suites: Files with expectations for the rows of flushed MemTables, .json or .py, where the Spark driver runs.
        since: After: recount everything merged after this version, not only the last merge.
        docs: Directory or s3://bucket/prefix in which the pages of the results get a folder; empty: none are written.
        advisory: Report what fails, and hold nothing back.
        due_only: Check nothing that was checked before as it is now.
    """

    info: ClassVar[JobInfo[QualityReport]] = JobInfo(
        name="quality",
        summary="Check flushed MemTables before a merge and the base table after it.",
        implementation="memwal_core.spark.quality_job:QualityJob",
        runbook="docs/runbooks/check-failed.md",
        guide=_GUIDE,
        exit_codes="3 nothing to check, 4 storage failure (try again), 5 a check failed and a person must look",
        takes_lease=False,
        needs_spark=True,
        started_by=(BASE_TABLE_ASSET,),
        acts_on_frozen=True,  # It only holds generations back, and shows whether the cause is gone.
    )

    stage: Stages = Field(
        default=Stages.AFTER,
        title="Stage",
        description="Before: audit the flushed MemTables that wait. After: check the base table.",
    )
    suites: SuiteFiles = Field(
        default=(),
        title="Suites",
        description="Files with expectations for the rows of flushed MemTables, .json or .py, where the Spark driver "
        "runs. Python files are executed.",
        json_schema_extra={"section": "Checks", "uniqueItems": True},
    )
    since: Count | None = Field(
        default=None,
        ge=1,
        title="Since version",
        description="After: recount everything merged after this version, not only the last merge.",
        json_schema_extra={"section": "Checks"},
    )
    docs: Annotated[str, Grant.DOCS] = Field(
        default="",
        title="Data Docs",
        description="Directory or s3://bucket/prefix in which the pages of the results get a folder for the table and "
        "the stage. In Airflow: a name that the registry gives one. Empty: none are written.",
        json_schema_extra={"section": "Checks"},
    )
    advisory: bool = Field(
        default=False,
        title="Advisory",
        description="Only report what fails: no flushed MemTable is held back, and the table is not frozen.",
        json_schema_extra={"section": "Checks"},
    )
    due_only: bool = Field(
        default=False,
        title="Only what is due",
        description="Run only if something was flushed, or merged, or a suite has changed since the newest checks of "
        "the stage.",
        json_schema_extra={"section": "Checks"},
    )

    @property
    def key(self) -> JobKey:
        """Each stage has a history: one that passes says nothing about failures of the other."""
        return JobKey(self.info.name, self.stage.value)
