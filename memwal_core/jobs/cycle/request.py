"""What a maintenance cycle is asked for."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from memwal_core.jobs.request import Flag, JobInfo, JobRequest

_GUIDE = """
### Maintain one table: flush, merge, catch-up, compact, catch-up, snapshot, garbage

One run goes through all jobs of the table, each after the one that it needs, in one process. The DAG `memwal_maintain`
does the same for every registered table, with a task for each step.

On a table that has not changed since a run that had nothing to do, a run leaves all steps out, for at most an hour: it
makes a dozen requests, writes nothing, and says so.
"""


class MaintainRequest(JobRequest):
    """Flush what dead writers left, merge, catch up, compact if due, publish a snapshot, collect garbage.

    Stops at the first job that needs a person.

    Attributes:
        delete: Let garbage collection delete; otherwise it lists what it would delete.
        remove_versions: Let compaction remove old table versions, too.
        ignore_pauses: Run jobs that pause because they kept failing.
    """

    info: ClassVar[JobInfo] = JobInfo(
        name="maintain",
        summary="Run all jobs of a table in the right order.",
        implementation="memwal_core.jobs.cycle.job:MaintainJob",
        runbook="docs/runbooks/job-failures.md",
        guide=_GUIDE,
        exit_codes="3 nothing to do, 4 conflict, pause or storage failure (try again), 5 something needs a person",
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
