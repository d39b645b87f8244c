"""Remove old versions of the base table, with the files that only they need."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from memwal_core.base_table import (
    BaseTable,
    CleanupResult,
    TableVersion,
    explain_cleanup,
    list_versions,
    remove_versions,
)
from memwal_core.jobs.outcome import CheckLease, JobOutcome, no_lease
from memwal_core.settings import CompactSettings

_log = logging.getLogger(__name__)


class Kept(StrEnum):
    """Why a version stays."""

    NEWEST = "among the newest"
    YOUNG = "younger than the retention"
    TAGGED = "tagged"
    BRANCHED = "the beginning of a branch"
    NEEDED = "needed by another job"


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """Which versions go, ascending, and why each of the others stays."""

    remove: tuple[int, ...]
    keep: dict[int, Kept]

    def counts(self) -> dict[str, int]:
        """Return the number of versions that stay, by reason."""
        reasons = Counter(self.keep.values())
        return {kept.value: reasons[kept] for kept in Kept if reasons[kept]}

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"remove": list(self.remove), "keep": self.counts()}


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """One removal of old versions.

    Attributes:
        result: What the removal freed; of a dry run, what it would free.
    """

    table_uri: str
    outcome: JobOutcome
    plan: CleanupPlan
    result: CleanupResult

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "cleanup",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "versions": self.result.versions,
            "bytes": self.result.size_bytes,
            "data_files": self.result.data_files,
            "index_files": self.result.index_files,
            "plan": self.plan.to_dict(),
        }


def plan_cleanup(
    versions: Sequence[TableVersion], now: datetime, settings: CompactSettings, *, needed: Collection[int]
) -> CleanupPlan:
    """Decide which versions go; ``needed`` are versions that another job still reads or derives a decision from."""
    newest = {each.version for each in sorted(versions, key=lambda each: each.version)[-settings.keep_versions :]}
    oldest_kept = now - timedelta(seconds=settings.retention_s)
    keep: dict[int, Kept] = {}
    for each in versions:
        if each.version in newest:
            keep[each.version] = Kept.NEWEST
        elif each.tags:
            keep[each.version] = Kept.TAGGED
        elif each.branches:
            keep[each.version] = Kept.BRANCHED
        elif each.version in needed:
            keep[each.version] = Kept.NEEDED
        elif each.timestamp > oldest_kept:
            keep[each.version] = Kept.YOUNG
    return CleanupPlan(tuple(sorted(each.version for each in versions if each.version not in keep)), keep)


def clean_up(
    table: BaseTable,
    settings: CompactSettings,
    now: datetime,
    *,
    needed: Collection[int],
    dry_run: bool = False,
    check_lease: CheckLease = no_lease,
) -> CleanupReport:
    """Remove old versions that nothing needs; nothing below ``_mem_wal/`` is touched.

    A version that is tagged after the plan was made stays as well. ``needed`` are versions that another job
    still reads or derives a decision from.
    """
    plan = plan_cleanup(list_versions(table), now, settings, needed=needed)
    if dry_run or not plan.remove:
        outcome = JobOutcome.PLANNED if plan.remove else JobOutcome.NOTHING_TO_DO
        return CleanupReport(table.uri, outcome, plan, explain_cleanup(table, plan.remove))
    check_lease()
    result = remove_versions(table, plan.remove)
    _log.info("old versions removed [table=%s, versions=%d, bytes=%d]", table.uri, result.versions, result.size_bytes)
    return CleanupReport(table.uri, JobOutcome.DONE, plan, result)
