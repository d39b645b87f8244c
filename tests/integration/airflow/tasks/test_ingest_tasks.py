"""Tasks of the ingest DAG without Airflow: what is planned, skipped and verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.airflow.tasks.on_spark import document_of
from memwal_core.airflow.tasks.work import hold_leases, plan_work, release_leases, request_of, verify_work
from memwal_core.base_table import BaseTable
from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.ingest.batch import BatchId, RegionRows
from memwal_core.ingest.records import BatchRecords, ShareDone
from memwal_core.jobs.document import parse_job
from memwal_core.jobs.ingest.request import IngestRequest
from memwal_core.registry import REGISTRY_VARIABLE
from testkit.tables.people import make_people_table

PARAMS: dict[str, object] = {
    "sources": ["a.parquet", "b.parquet"],
    "stream": "s",
    "batch": None,
    "format": None,
    "order_by": "at",
    "delete_column": None,
    "suites": [],
    "takeover": "fail",
    "dry_run": False,
}


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    return make_people_table(str(tmp_path / "people.lance"))


def _params(table: BaseTable, **changed: object) -> dict[str, object]:
    return {**PARAMS, "table": table.uri, **changed}


def _write(table: BaseTable, batch: BatchId) -> None:
    records = BatchRecords(table.store, table.clock)
    records.begin(batch, {"{}": RegionRows(3)})
    records.record_share(batch, ShareDone("{}", "r", 3, 0, 1, "1"))
    records.finish(batch)


def test_plan_hands_the_form_to_the_job(table: BaseTable, suite_file: Path) -> None:
    (item,) = plan_work("ingest", _params(table, suites=[suite_file.name]), run_id="day")

    document = parse_job(document_of(item, "dag/run").to_text())
    assert document.parsed() == IngestRequest(
        sources=("a.parquet", "b.parquet"), stream="s", batch="day", order_by="at", suites=(str(suite_file),)
    )
    assert (document.job, document.uri, document.holder) == ("ingest", table.uri, "dag/run")
    assert document.storage_options == {}
    assert document.ok_when_nothing
    assert not document.ok_when_blocked
    (dry,) = plan_work("ingest", _params(table, dry_run=True), run_id="day")
    assert request_of(dry).dry_run  # reads all rows, so it is work, too


def test_a_batch_needs_no_lease_and_has_none_to_give_back(table: BaseTable) -> None:
    items = plan_work("ingest", _params(table), run_id="day")

    held = hold_leases(items, "dag/run")

    assert held == items
    assert release_leases(held) == []


def test_a_batch_that_is_written_is_not_planned_again(table: BaseTable) -> None:
    _write(table, BatchId("s", "day"))

    assert plan_work("ingest", _params(table), run_id="day") == []
    assert plan_work("ingest", _params(table, batch="day"), run_id="other") == []
    assert len(plan_work("ingest", _params(table, stream="other"), run_id="day")) == 1


def test_verify_reads_the_record_and_fails_without_one(table: BaseTable) -> None:
    planned = plan_work("ingest", _params(table), run_id="day")
    with pytest.raises(InternalError, match="no record"):
        verify_work(planned, [], "dag/run")
    _write(table, BatchId("s", "day"))

    [change] = verify_work(planned, [], "dag/run")

    assert (change["table"], change["uri"]) == (table.uri, table.uri)
    assert change["facts"] == {"stream": "s", "batch": "day", "rows": 3, "regions": 1}


@pytest.mark.req("WRT-88")
def test_suites_of_the_registry_come_before_those_of_the_form(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = tmp_path / "tables.toml"
    folder = tmp_path / "suites"
    folder.mkdir()
    for name in ("people.json", "mine.py"):
        (folder / name).touch()
    registry.write_text(
        f'[[tables]]\nname = "people"\nuri = "{table.uri}"\ninput_suites = ["people.json"]\n'
        f'[[sources]]\nname = "landing"\naddress = "{tmp_path}"\nformat = "csv"\n'
    )
    monkeypatch.setenv(REGISTRY_VARIABLE, str(registry))

    asked = {**_params(table), "table": "people", "sources": ["landing/a.csv"], "suites": ["mine.py"]}
    (item,) = plan_work("ingest", asked, run_id="day")

    assert (item["table"], item["request"]["suites"]) == ("people", ["mine.py"])
    document = document_of(item, "dag/run")
    assert (document.uri, document.request["suites"]) == (
        table.uri,
        [str(folder / "people.json"), str(folder / "mine.py")],
    )
    assert document.request["sources"] == [f"{tmp_path}/a.csv"]


def test_a_list_is_asked_for_where_one_is_needed(table: BaseTable) -> None:
    with pytest.raises(InvalidRequestError, match=r"sources.*valid tuple"):
        plan_work("ingest", _params(table, sources="a.parquet"), run_id="day")
