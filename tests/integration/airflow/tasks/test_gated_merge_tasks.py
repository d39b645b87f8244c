"""Merges of a table whose entry demands checks, as tasks: only what an audit saw, by the cycle and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.airflow.tasks.cycle import CycleTable, choose_cycle_tables
from memwal_core.airflow.tasks.on_spark import document_of
from memwal_core.airflow.tasks.work import WorkItem, do_work, plan_work
from memwal_core.jobs.cycle.plan import LeftOut
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.quality.suites import digest_of_suites
from memwal_core.quality.model import Stage
from memwal_core.registry.load import REGISTRY_VARIABLE
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people, quality_of
from tests.integration.airflow.tasks.steps import run_step


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "suites").mkdir(mode=0o700)
    file = tmp_path / "suites" / "rows.json"
    file.write_text("{}")
    return file


@pytest.fixture
def opened(tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A flushed MemTable that an audit by the entry's suite saw, and one that was flushed later."""
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    path = tmp_path / "tables.toml"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    path.write_text(
        f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\nchecks = 'mandatory'\nsuites = ['{suite.name}']\n"
    )
    write_generations(table, range(10), name="new")
    found = Table.open(table.uri)
    quality = quality_of(found)
    quality.record_audit(quality.plan(Stage.BEFORE), {}, digest_of_suites([str(suite)]))
    write_generations(table, range(10, 20), name="late")
    return found


def test_step_of_the_cycle_leaves_what_was_flushed_after_the_audit(opened: Table) -> None:
    [chosen] = choose_cycle_tables([], by_schedule=False)

    merged = run_step("merge", chosen, "memwal_maintain/run 1")
    again = run_step("merge", CycleTable(**chosen), "memwal_maintain/run 2")

    assert not isinstance(merged, LeftOut)
    assert merged["result"]["facts"]["generations"] == 1
    assert isinstance(again, LeftOut)
    assert "waits for the next audit" in again.why
    assert Table.open(opened.uri).status().merge_lag_generations == 1


def test_merge_by_hand_and_its_application_are_bounded_like_the_cycle(opened: Table, suite: Path) -> None:
    items: list[WorkItem] = plan_work("merge", {"table": "people"})

    [item] = items
    assert set(item["promise"]["through"].values()) == {1}
    request = document_of(item, "memwal_merge/run").parsed()
    assert isinstance(request, MergeRequest)
    assert (request.audited_only, request.suites) == (True, (str(suite),))
    assert do_work(item, "memwal_merge/run")["facts"]["generations"] == 1
    assert plan_work("merge", {"table": "people"}) == []
