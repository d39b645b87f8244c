"""Run a verification, as a job of its own or after a merge."""

from __future__ import annotations

from memwal_core.base_table import TableReader
from memwal_core.clock import Clock
from memwal_core.errors import DuplicateKeysError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.jobs.verify.keys import count_keys_in_shares
from memwal_core.jobs.verify.plan import VerifyPlan
from memwal_core.jobs.verify.report import VerifyReport


def verify(
    table: TableReader, clock: Clock, sharing: Sharing, plan: VerifyPlan, *, dry_run: bool = False
) -> VerifyReport:
    """Count the keys that are planned to be counted.

    Raises:
        DuplicateKeysError: A key occurs more than once. Merge nothing and delete nothing; follow the runbook.
    """
    began = clock.monotonic()
    outcome, keys = JobOutcome.NOTHING_TO_DO, 0
    if plan.is_due:
        sharing.choose(plan.work)
        outcome = JobOutcome.PLANNED if dry_run else JobOutcome.DONE
        keys = 0 if dry_run else require_single_keys(table, plan, sharing)
    return VerifyReport(outcome, plan, keys, clock.monotonic() - began, sharing.place)


def require_single_keys(table: TableReader, plan: VerifyPlan, sharing: Sharing | None) -> int:
    """Return how many keys a version has, each once; without ``sharing`` this process counts them.

    Raises:
        DuplicateKeysError: A key occurs more than once.
    """
    counts = count_keys_in_shares(sharing, table.dataset(plan.version), plan.schema)
    if counts.rows != counts.keys:
        raise DuplicateKeysError(
            "primary keys occur more than once in the base table",
            remedy="start no merge and no garbage collection; follow docs/runbooks/duplicate-keys.md",
            table=table.uri,
            version=plan.version,
            rows=counts.rows,
            keys=counts.keys,
            sample=[dict(key) for key in counts.repeated],
        )
    return counts.keys
