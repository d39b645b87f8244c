"""The exit code of a round tells whether all, some or no tables are fine."""

from __future__ import annotations

import pytest

from memwal_core.fleet import FleetReport, RoundEnd, TableRound
from memwal_core.jobs.outcome import JobOutcome


def ran(outcome: JobOutcome) -> TableRound:
    return TableRound("t", "/t", RoundEnd.MAINTAINED, "", outcome=outcome, exit_code=outcome.exit_code)


IDLE = TableRound("i", "/i", RoundEnd.NOT_DUE, "")
BUSY = TableRound("b", "/b", RoundEnd.BUSY, "")
OVERDUE = TableRound("o", "/o", RoundEnd.OVERDUE, "", exit_code=4)
BROKEN = TableRound("x", "/x", RoundEnd.FAILED, "", exit_code=2)


@pytest.mark.parametrize(
    ("tables", "code"),
    [
        ((), 3),
        ((IDLE, BUSY, ran(JobOutcome.NOTHING_TO_DO)), 3),
        ((IDLE, ran(JobOutcome.DONE)), 0),
        ((ran(JobOutcome.DONE), OVERDUE), 6),
        ((IDLE, ran(JobOutcome.FROZEN)), 6),
        ((ran(JobOutcome.FROZEN),), 8),
        ((OVERDUE, BROKEN), 2),
        ((ran(JobOutcome.CONFLICT), ran(JobOutcome.BLOCKED)), 5),
        ((ran(JobOutcome.PARTIAL),), 6),
    ],
)
def test_exit_code(tables, code):
    assert FleetReport(tables, 1.0).exit_code == code


def test_idle_tables_are_counted_and_problems_come_first():
    lines = list(FleetReport((IDLE, ran(JobOutcome.DONE), OVERDUE), 1.0).view().lines())

    assert lines[0] == "1 not due, 1 done, 1 overdue, 1.00 s"
    assert [line.split("  ")[0] for line in lines[1:]] == ["table: o", "table: t"]
