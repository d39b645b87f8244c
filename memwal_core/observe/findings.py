"""What may be wrong with a table, and how urgent it is: the words that every face of the project uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.ids import RegionId


class Level(StrEnum):
    """How urgent the state of a table or a signal is, from best to worst.

    ``unknown`` is the level of a signal that was not measured. It never raises the level of a table.
    """

    UNKNOWN = "unknown"
    OK = "ok"
    WARN = "warn"
    PAGE = "page"

    @property
    def severity(self) -> int:
        """0 for ok, 1 for warn, 2 for page; -1 for unknown."""
        return list(Level).index(self) - 1

    @property
    def exit_code(self) -> int:
        """Exit code of ``memwal status --check`` when this is the worst level."""
        return {Level.WARN: 6, Level.PAGE: 7}.get(self, 0)


class HealthVerdict(StrEnum):
    """What an examination amounts to."""

    HEALTHY = "healthy"
    NEEDS_OPERATOR = "needs an operator"
    NOT_MEMWAL = "not a MemWAL table"


class Severity(StrEnum):
    """How urgent a finding is."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def level(self) -> Level:
        """The level of a table that has such a finding."""
        return {Severity.WARNING: Level.WARN, Severity.CRITICAL: Level.PAGE}.get(self, Level.OK)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        finding_id: Stable name of the kind of finding, for example ``wal-hole``.
        evidence: The values that prove it. ``subject`` says where, if the region does not.
        region_id: The region concerned; None for the whole table.
        runbook: The page that tells what to do, relative to the repository.
        command: The command that mends it, as it must be typed; empty if none does.
    """

    finding_id: str
    severity: Severity
    summary: str
    evidence: Mapping[str, object]
    risk: str
    remedy: str
    region_id: RegionId | None = None
    runbook: str = "docs/doctor.md"
    command: str = ""

    @property
    def subject(self) -> str:
        """Where it is: what the evidence says, else the region; empty for the whole table."""
        named = self.evidence.get("subject")
        return str(named) if named else f"region {self.region_id}" if self.region_id is not None else ""

    @property
    def identity(self) -> tuple[str, RegionId | None, str]:
        """What makes it the same finding in another examination; measured values may differ."""
        return self.finding_id, self.region_id, self.subject

    @property
    def shown_evidence(self) -> dict[str, object]:
        """The evidence as people and machines see it: without what there is none of."""
        return {name: value for name, value in self.evidence.items() if value is not None}

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "finding": self.finding_id,
            "severity": self.severity.value,
            "level": self.severity.level.value,
            "region_id": str(self.region_id) if self.region_id is not None else None,
            "subject": self.subject,
            "summary": self.summary,
            "evidence": self.shown_evidence,
            "risk": self.risk,
            "remedy": self.remedy,
            "runbook": self.runbook,
            "command": self.command,
        }


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings with the most urgent first."""
    return tuple(
        sorted(findings, key=lambda each: (-list(Severity).index(each.severity), each.finding_id, each.subject))
    )
