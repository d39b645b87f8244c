"""A frozen table in Airflow: the run that finds the cause fails once, later ones plan no work."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from memwal_core.airflow.failures import FROZEN, no_vain_retries
from memwal_core.airflow.tasks.cycle import CycleTable, begin_cycle, end_cycle, prepare_step
from memwal_core.airflow.tasks.work import plan_work
from memwal_core.errors import FrozenError
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table


@pytest.fixture
def frozen(tmp_path: Path) -> Table:
    made = make_people_table(str(tmp_path / "t"), buckets=1)
    write_generations(made, [1], name="waits")
    table = Table.open(made.uri)
    table.freeze("an experiment", by="someone")
    return table


def test_run_on_a_frozen_table_plans_no_work_and_says_why(frozen: Table, caplog: pytest.LogCaptureFixture) -> None:
    assert plan_work("merge", {"table": frozen.uri}) == []
    assert "an experiment" in caplog.text
    assert "--choice accept" in caplog.text


def test_cycle_of_a_frozen_table_has_no_work_and_fails_nobody(frozen: Table) -> None:
    table = CycleTable(label="t", table=frozen.uri, ignore_pauses=True)
    begin_cycle(table, "run-1")
    assert {prepare_step(name, table).outcome.value for name in ("merge", "collect_garbage")} == {"frozen"}
    assert end_cycle(table, "run-1") == "frozen"
    (run,) = frozen.opened.ledger.history(MaintainRequest().key).runs
    assert run.outcome.value == "frozen"


def test_task_that_finds_a_table_frozen_is_not_tried_again() -> None:
    error = FrozenError("the table is frozen", remedy="thaw it")
    assert error.exit_code == FROZEN

    @no_vain_retries
    def work() -> None:
        raise error

    with pytest.raises(AirflowFailException, match="a person must thaw the table") as failed:
        work()
    assert failed.value.__cause__ is error
