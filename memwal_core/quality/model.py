"""The checks as values: what is checked, on what, and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memwal_core.holds import Hold
from memwal_core.maintenance.outcome import JobOutcome


class Stage(StrEnum):
    """When checks run: on what a merge would take on, or on what merges have made."""

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
        check: What was checked.
        result: How it ended.
        subject: What it was checked on, for example ``version 12`` or a region and generation.
        evidence: The facts behind the result; why, if it was skipped.
        count: Rows or values that broke it, where they were counted.
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
        table_uri: The base table.
        stage: Which checks.
        outcome: ``done`` if all passed, ``blocked`` if one failed, ``nothing_to_do`` if there was
            nothing to check, ``planned`` on a dry run.
        version: Base version that was looked at.
        results: In the order of the checks.
        held: Flushed MemTables that this run holds back from the merge.
        ended_at: When, as ISO 8601 text.
        seconds: The whole run.
        docs: Where the Data Docs site is; empty if none was asked for.
    """

    table_uri: str
    stage: Stage
    outcome: JobOutcome
    version: int
    results: tuple[CheckResult, ...]
    held: tuple[Hold, ...]
    ended_at: str
    seconds: float
    docs: str = ""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.result is Result.FAILED)

    @property
    def reason(self) -> str:
        """Why the run ended as it did, in one sentence for the ledger."""
        if self.failed:
            return f"failed: {', '.join(sorted({result.check.value for result in self.failed}))}"
        return "" if self.results else "there was nothing to check"

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
            "held": [hold.to_dict() for hold in self.held],
            "ended_at": self.ended_at,
            "seconds": round(self.seconds, 6),
            "docs": self.docs,
        }


def quality_facts(report: QualityReport) -> dict[str, object]:
    """Return what the ledger remembers of a run."""
    return {
        "stage": report.stage.value,
        "version": report.version,
        "checks": len(report.results),
        "failed": [result.check.value for result in report.failed],
        "held": len(report.held),
        "docs": report.docs,
    }


def outcome_of(results: tuple[CheckResult, ...]) -> JobOutcome:
    """Return how a run with these results ended."""
    if any(result.result is Result.FAILED for result in results):
        return JobOutcome.BLOCKED
    return JobOutcome.DONE if results else JobOutcome.NOTHING_TO_DO
