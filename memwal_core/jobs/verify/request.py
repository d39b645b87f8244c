"""What a verification is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from memwal_core.coordination.job_key import JobKey
from memwal_core.jobs.request import JobInfo, JobRequest
from memwal_core.jobs.sharing.place import Engine, engine_field
from memwal_core.jobs.verify.facts import VERIFY

if TYPE_CHECKING:
    from memwal_core.jobs.verify.report import VerifyReport

_GUIDE = """
### Verify that a table holds every key once

Reads the key columns of the whole base table and counts each key. Every merge is verified like this when it has ended;
start it by hand after a restore, or after other programs have written to the table.

**When is it safe?** Always: rows are never changed. It reads one version, whatever is written meanwhile.

**What do failures mean?** Storage failures are tried again. Keys that occur more than once freeze the table, and need a
person: see `docs/runbooks/duplicate-keys.md`.
"""


class VerifyRequest(JobRequest):
    """Verify that the newest version of the base table holds every primary key once.

    Attributes:
        engine: Where keys are counted.
        due_only: Count only if something was merged since the last count, and not in this process if that is much.
    """

    info: ClassVar[JobInfo[VerifyReport]] = JobInfo(
        name="verify",
        summary="Verify that the base table holds every primary key once.",
        implementation="memwal_core.jobs.verify.job:VerifyJob",
        runbook="docs/runbooks/duplicate-keys.md",
        guide=_GUIDE,
        exit_codes="3 the table has no primary key, 4 storage failure (try again), 5 keys occur more than once",
        takes_lease=False,
        takes_plain_tables=True,
        acts_on_frozen=True,  # It changes nothing, and shows whether the cause is gone.
    )

    engine: Engine = engine_field()
    due_only: bool = Field(
        default=False,
        title="Only what is due",
        description="Count only if something was merged since the last count that found every key once; and without "
        "Spark only up to MEMWAL_DISPATCH__MAX_BYTES of keys.",
    )

    @property
    def key(self) -> JobKey:
        """The same history as that of the proofs after merges."""
        return VERIFY
