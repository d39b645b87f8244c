"""What a snapshot build did, for people and for machines."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.ids import RegionId
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.maintenance.snapshot.plan import SnapshotPlan


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """One build.

    Attributes:
        table_uri: The base table.
        outcome: How it ended.
        version_before: Table version of the first plan.
        version_after: Version that has the snapshot, or the newest one seen.
        hints_raised: Region -> WAL entry that its manifest now names.
        hints_failed: Regions whose hint could not be raised, which does no harm.
        overtaken: Times another builder published first.
        plan: The last plan; of a dry run, the one that a run would execute.
        seconds: The whole build.
        reason: Why a conflict ended it; empty otherwise.
    """

    table_uri: str
    outcome: JobOutcome
    version_before: int
    version_after: int
    hints_raised: dict[RegionId, int]
    hints_failed: tuple[RegionId, ...]
    overtaken: int
    plan: SnapshotPlan
    seconds: float
    reason: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "snapshot",
            "table_uri": self.table_uri,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "version_before": self.version_before,
            "version_after": self.version_after,
            "regions": self.plan.regions,
            "hints_raised": {str(region_id): wal_id for region_id, wal_id in self.hints_raised.items()},
            "hints_failed": [str(region_id) for region_id in self.hints_failed],
            "overtaken": self.overtaken,
            "plan": self.plan.to_dict(),
            "seconds": round(self.seconds, 6),
        }
