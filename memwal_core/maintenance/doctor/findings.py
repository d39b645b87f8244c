"""What the doctor says: findings, and the report of an examination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from memwal_core.ids import RegionId
from memwal_core.index.legacy import LegacyIndex

HEALTHY_EXIT_CODE = 0
NEEDS_HUMAN_EXIT_CODE = 5


class Severity(StrEnum):
    """How urgent a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def needs_human(self) -> bool:
        """Whether somebody has to act."""
        return self is not Severity.INFO


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        finding_id: Stable name of the kind of finding, for example ``wal-hole``.
        severity: How urgent it is.
        summary: What is wrong, one sentence.
        evidence: The values that prove it.
        risk: What can happen, one sentence.
        remedy: What to do, in the imperative.
        region_id: The region concerned; None for the whole table.
    """

    finding_id: str
    severity: Severity
    summary: str
    evidence: Mapping[str, object]
    risk: str
    remedy: str
    region_id: RegionId | None = None

    @property
    def identity(self) -> tuple[str, RegionId | None, str]:
        """What makes it the same finding in another examination; measured values may differ."""
        return self.finding_id, self.region_id, str(self.evidence.get("subject", ""))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "finding": self.finding_id,
            "severity": self.severity.value,
            "region_id": str(self.region_id) if self.region_id is not None else None,
            "summary": self.summary,
            "evidence": dict(self.evidence),
            "risk": self.risk,
            "remedy": self.remedy,
        }


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """The result of an examination.

    Attributes:
        table_uri: The table.
        version: Its version; None if its state cannot be read.
        regions: Regions examined.
        keys_sampled: Keys compared between regions.
        findings: The most urgent first.
        facts: What else was seen, for people.
        legacy: The early index of the newest version, if the table has one.
    """

    table_uri: str
    version: int | None
    regions: int
    keys_sampled: int
    findings: tuple[Finding, ...]
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    legacy: LegacyIndex | None = None

    @property
    def healthy(self) -> bool:
        """Whether nobody has to act."""
        return not any(finding.severity.needs_human for finding in self.findings)

    @property
    def exit_code(self) -> int:
        """Exit code of the command-line tools."""
        return HEALTHY_EXIT_CODE if self.healthy else NEEDS_HUMAN_EXIT_CODE

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "doctor",
            "table_uri": self.table_uri,
            "version": self.version,
            "healthy": self.healthy,
            "regions": self.regions,
            "keys_sampled": self.keys_sampled,
            "facts": dict(self.facts),
            "findings": [finding.to_dict() for finding in self.findings],
            "legacy": [each.to_dict() for each in self.legacy.mem_wals] if self.legacy is not None else None,
        }
