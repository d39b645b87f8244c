"""The checks as values: what is checked, on what, and the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid, ReportView, show_words
from memwal_core.region.quarantine import Quarantined
from memwal_core.text import show_count


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
    ACCEPTED = "accepted"
    """It failed as it did when a person accepted it, and nothing was merged since."""


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

    @property
    def failure(self) -> str:
        """What makes it the same failure when the same state is checked again, also under a later version number."""
        subject = self.subject if not self.subject.startswith("version ") else ""
        told = {
            Check.ROWS_STABLE: self.evidence,
            Check.KEY_UNIQUE: str(self.count),
            Check.KEY_NOT_NULL: str(self.count),
        }
        return f"{self.check.value} {re.split('[,:]', subject)[0]} {told.get(self.check, '')}".rstrip()

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "check": self.check.value,
            "result": self.result.value,
            "subject": self.subject,
            "evidence": self.evidence,
            "count": self.count,
            "failure": self.failure if self.result is Result.FAILED else "",
        }


@dataclass(frozen=True, slots=True)
class QualityReport:
    """One stage of the checks on one table.

    Attributes:
        outcome: ``done`` if all passed or failures are only reported, ``blocked`` if one failed, ``nothing_to_do`` if
            there was nothing to check, ``planned`` on a dry run.
        results: In the order of the checks.
        ended_at: End of the run, as ISO 8601 text.
        docs: Where the Data Docs site is; empty if none was asked for.
        plan: Of a dry run: what would be checked, JSON-able.
        basis: What tells the state that was checked from any other in which the checks could end otherwise.
        advisory: Whether failures are only reported: nothing is held back or frozen.
        since: Why there was nothing to check; empty if there was, or if no reason is known.
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
    basis: str = ""
    advisory: bool = False
    since: str = ""

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """The checks that failed."""
        return tuple(result for result in self.results if result.result is Result.FAILED)

    def why(self) -> str:
        """Say which checks failed."""
        if self.outcome is JobOutcome.PLANNED:
            return "there is something to check"
        if self.failed:
            only = ", only reported" if self.advisory else ""
            return f"failed{only}: {', '.join(sorted({result.check.value for result in self.failed}))}"
        accepted = sum(result.result is Result.ACCEPTED for result in self.results)
        if accepted:
            return f"{show_count(len(self.results) - accepted, 'check')} passed, {accepted} failed as a person accepted"
        return (
            f"{show_count(len(self.results), 'check')} passed"
            if self.results
            else self.since or "there was nothing to check"
        )

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
            "basis": self.basis,
            "advisory": self.advisory,
            **({} if self.plan is None else {"plan": dict(self.plan)}),
        }


def outcome_of(results: tuple[CheckResult, ...], *, advisory: bool = False) -> JobOutcome:
    """Return the outcome of a run with these results."""
    if not advisory and any(result.result is Result.FAILED for result in results):
        return JobOutcome.BLOCKED
    return JobOutcome.DONE if results else JobOutcome.NOTHING_TO_DO
