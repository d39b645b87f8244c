"""Failed checks that a person accepted: on which rows, and by which decision."""

from __future__ import annotations

from datetime import UTC, datetime

from memwal_core.coordination.freeze import (
    Choice,
    FreezeCause,
    FreezeEnd,
    MaintenanceRecord,
    accepted_failures,
    failure_evidence,
)
from memwal_core.coordination.freeze.document import Freeze

AT = datetime(2026, 1, 2, tzinfo=UTC)


def ended_by(choice: Choice | None) -> MaintenanceRecord:
    end = FreezeEnd(choice, "anna", AT) if choice is not None else None
    evidence = failure_evidence("merged 7", ("rows", "index"))
    return MaintenanceRecord(freezes=(Freeze(FreezeCause.CHECK_FAILED, evidence, "quality", AT, ended=end),))


def test_accepted_failures_are_those_of_what_was_checked_and_of_nothing_merged_later() -> None:
    assert accepted_failures(ended_by(Choice.ACCEPT), "merged 7") == {"rows", "index"}
    assert accepted_failures(ended_by(Choice.ACCEPT), "merged 8") == frozenset()
    assert accepted_failures(ended_by(Choice.ACCEPT), "") == frozenset()


def test_failures_that_no_person_accepted_are_failures() -> None:
    assert accepted_failures(ended_by(None), "merged 7") == frozenset()
    assert accepted_failures(ended_by(Choice.MERGE_AGAIN), "merged 7") == frozenset()
    assert accepted_failures(None, "merged 7") == frozenset()
