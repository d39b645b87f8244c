"""What a maintenance cycle is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from memwal_core.jobs.quality.request import QualityGate
from memwal_core.jobs.request import Flag, JobInfo, JobRequest, SuiteFiles

if TYPE_CHECKING:
    from memwal_core.jobs.cycle.report import MaintainReport

_GUIDE = """
### Maintain one table: flush, audit, merge, verify, catch-up, check, compact, catch-up, snapshot, garbage

One run goes through all jobs of the table, each after the one that it needs, in one process. The DAG `memwal_maintain`
does the same for every registered table, with a task for each step.

On a table that has not changed since a run that had nothing to do, a run leaves all steps out, for at most an hour: it
makes a dozen requests, writes nothing, and says so.

**The quality gate.** That every key is there once is verified after merges, at most once an hour
(`MEMWAL_QUALITY__VERIFY_EVERY_S`). With `checks` the data is also checked with Great Expectations on Spark: what was
flushed before the merge takes it on, with your own `suites`, and the table after it. Nothing is checked again that is
as it was checked. `mandatory`: flushed MemTables that fail, or that were flushed after the audit, are left out of the
merge; a table that fails is frozen, so that nothing merges further, compacts, or removes what could bring its rows
back. `advisory`: failures are reported, in the report of the run and by `memwal checks`, and hold nothing.
"""


class MaintainRequest(JobRequest):
    """Flush what dead writers left, merge, verify, catch up, compact if due, publish a snapshot, collect garbage.

    Stops at the first job that needs a person.

    Attributes:
        delete: Let garbage collection delete; otherwise it lists what it would delete.
        remove_versions: Let compaction remove old table versions, too.
        ignore_pauses: Run jobs that pause because they kept failing.
        checks: Whether data is checked before and after the merge, and what a failure holds back.
        suites: Files with expectations for the rows of flushed MemTables, .json or .py, where the Spark driver runs.
    """

    info: ClassVar[JobInfo[MaintainReport]] = JobInfo(
        name="maintain",
        summary="Run all jobs of a table in the right order.",
        implementation="memwal_core.jobs.cycle.job:MaintainJob",
        runbook="docs/runbooks/job-failures.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 conflict, pause or storage failure (try again), 5 something needs a person, "
        "6 damaged regions were left out, 8 the table is frozen",
        takes_lease=False,
        acts_on_frozen=True,  # Its steps do not.
    )

    delete: Annotated[bool, Flag("--delete/--keep-garbage")] = Field(
        default=True,
        title="Delete garbage",
        description="Let garbage collection delete what nothing needs any more; otherwise only its plan is shown, and "
        "the table grows.",
    )
    remove_versions: Annotated[bool, Flag("--remove-versions/--keep-versions")] = Field(
        default=True,
        title="Remove old versions",
        description="Let compaction remove table versions older than MEMWAL_RETENTION__HOURS that nothing needs; "
        "otherwise the table grows.",
    )
    ignore_pauses: Annotated[bool, Flag("--ignore-pauses")] = Field(
        default=False, title="Ignore pauses", description="Run jobs that pause because they kept failing."
    )
    checks: QualityGate = Field(
        default=QualityGate.OFF,
        title="Checks",
        description="Check what was flushed before the merge, and the table after it, on Spark. Mandatory: what fails "
        "is held back. Advisory: it is reported.",
        json_schema_extra={"section": "Checks"},
    )
    suites: SuiteFiles = Field(
        default=(),
        title="Suites",
        description="Files with expectations for the rows of flushed MemTables, .json or .py, where the Spark driver "
        "runs. Python files are executed. Only with checks.",
        json_schema_extra={"section": "Checks", "uniqueItems": True},
    )
