"""What became of a Spark application, as tasks read it from the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.airflow.tasks.on_spark import failure_recorded, recorded_runs, result_of
from memwal_core.airflow.tasks.work import WorkItem, plan_work
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table

RUN = "memwal_merge/scheduled__2026-01-01T00:00:00+00:00"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = make_people_table(str(tmp_path / "people.lance"), buckets=1)
    write_generations(made, [1, 2], name="new")
    return Table.open(made.uri)


@pytest.fixture
def item(table: Table) -> WorkItem:
    [planned] = plan_work("merge", {"table": table.uri, "dry_run": False})
    return planned


def record(table: Table, outcome: RunOutcome, **facts: object) -> None:
    """Record a run as an application of RUN does."""
    opened = table.opened
    run = opened.new_run(MergeRequest().key, RUN)
    opened.ledger.end(run, RunEnd(opened.clock.now(), outcome, facts))


def test_application_without_a_record_is_not_credited_with_an_earlier_one_of_its_run(
    table: Table, item: WorkItem
) -> None:
    """A cleared task told the result of its former try, and its run went on as if the rows were merged."""
    record(table, RunOutcome.DONE, version=7)
    before = recorded_runs(item, RUN)

    unrecorded = result_of(item, RUN, before)
    record(table, RunOutcome.NOTHING_TO_DO, version=8)
    recorded = result_of(item, RUN, before)

    assert (unrecorded["outcome"], unrecorded["facts"]) == ("conflict", {})
    assert (recorded["outcome"], recorded["facts"]) == ("nothing_to_do", {"version": 8})


def test_application_is_credited_with_nothing_where_what_was_before_could_not_be_read(
    table: Table, item: WorkItem
) -> None:
    record(table, RunOutcome.DONE, version=7)

    assert result_of(item, RUN, before=None)["outcome"] == "conflict"


def test_failure_of_an_application_is_recorded_once(table: Table, item: WorkItem) -> None:
    def failures() -> list[str]:
        return [run.error for run in table.opened.ledger.runs("merge") if run.outcome is RunOutcome.FAILED]

    def fail(*, recorded: bool) -> None:
        with failure_recorded(item, RUN, recorded_runs(item, RUN)):
            if recorded:
                record(table, RunOutcome.CONFLICT)
            raise OSError("no driver")

    record(table, RunOutcome.DONE)
    for recorded in (False, True):
        with pytest.raises(OSError, match="no driver"):
            fail(recorded=recorded)
        assert failures() == ["OSError"]
