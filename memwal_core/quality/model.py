"""The checks as values: what is checked, on what, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.region.quarantine import Quarantined


class Stage(StrEnum):
    """When checks run: before a merge on what it would take, or after it on what it made."""

    BEFORE = "before"
    AFTER = "after"


class Check(StrEnum):
    """What is checked; the names appear in reports and in Data Docs."""

    READABLE = "generation_readable"
    SCHEMA = "generation_schema"
    KEY_NOT_NULL = "key_not_null"
    REGION_EXCLUSIVITY = "region_exclusivity"
    USER_SUITE = "user_suite"
    KEY_UNIQUE = "key_unique"
    ROW_ARITHMETIC = "row_arithmetic"
    MERGED_KEYS_PRESENT = "merged_keys_present"
    DELETED_KEYS_ABSENT = "deleted_keys_absent"
    ROWS_STABLE = "rows_stable_between_merges"
    NO_TOMBSTONE_COLUMN = "no_tombstone_column"
    INDEXED_ANSWER = "indexed_answer"
    LSM_VIEW = "lsm_view"


class Result(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check on one subject.

    Attributes:
        subject: What it was checked on, for example ``version 12`` or a region and generation.
        evidence: The facts behind the result; the reason, if it was skipped.
    """

    check: Check
    result: Result
    subject: str
    evidence: str = ""
    count: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "check": self.check.value,
            "result": self.result.value,
            "subject": self.subject,
            "evidence": self.evidence,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class QualityReport:
    """One stage of the checks on one table.

    Attributes:
        outcome: ``done`` if all passed, ``blocked`` if one failed, ``nothing_to_do`` if there was nothing to check,
            ``planned`` on a dry run.
        results: In the order of the checks.
        ended_at: End of the run, as ISO 8601 text.
        docs: Where the Data Docs site is; empty if none was asked for.
        plan: Of a dry run: what would be checked, JSON-able.
    """

    table_uri: str
    stage: Stage
    outcome: JobOutcome
    version: int
    results: tuple[CheckResult, ...]
    quarantined: tuple[Quarantined, ...]
    ended_at: str
    seconds: float
    docs: str = ""
    plan: Mapping[str, object] | None = None

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.result is Result.FAILED)

    def why(self) -> str:
        """Say which checks failed."""
        if self.outcome is JobOutcome.PLANNED:
            return "there is something to check"
        if self.failed:
            return f"failed: {', '.join(sorted({result.check.value for result in self.failed}))}"
        return f"{len(self.results)} checks passed" if self.results else "there was nothing to check"

    def facts(self) -> dict[str, object]:
        """Return what the ledger remembers."""
        return {
            "stage": self.stage.value,
            "version": self.version,
            "checks": len(self.results),
            "failed": [result.check.value for result in self.failed],
            "quarantined": len(self.quarantined),
            "docs": self.docs,
        }

    def view(self) -> ReportView:
        """Return one line per check."""
        headline = f"{self.stage.value} a merge: {show_words(self.outcome.value)} on version {self.version}"
        rows = tuple(
            (
                each.check.value,
                each.result.value,
                each.subject,
                each.evidence if each.result is not Result.PASSED else "",
            )
            for each in self.results
        )
        notes = [
            f"held: region {entry.region_id} generation {entry.generation}: {'; '.join(entry.reasons)}"
            for entry in self.quarantined
        ]
        notes += [f"{name}: {value}" for name, value in (self.plan or {}).items() if value]
        return ReportView(headline, (Grid(("check", "result", "subject", "evidence"), rows),), tuple(notes))

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "job": "quality",
            "table_uri": self.table_uri,
            "stage": self.stage.value,
            "outcome": self.outcome.value,
            "version": self.version,
            "failed": len(self.failed),
            "results": [result.to_dict() for result in self.results],
            "quarantined": [entry.to_dict() for entry in self.quarantined],
            "ended_at": self.ended_at,
            "seconds": round(self.seconds, 6),
            "docs": self.docs,
            **({} if self.plan is None else {"plan": dict(self.plan)}),
        }


def outcome_of(results: tuple[CheckResult, ...]) -> JobOutcome:
    """Return the outcome of a run with these results."""
    if any(result.result is Result.FAILED for result in results):
        return JobOutcome.BLOCKED
    return JobOutcome.DONE if results else JobOutcome.NOTHING_TO_DO
