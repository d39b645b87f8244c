"""Tasks of the ingest DAG without Airflow: what is planned, skipped and verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.base_table import BaseTable
from memwal_core.errors import InternalError, InvalidRequestError
from memwal_core.ingest import BatchId, BatchRecords, RegionRows, ShareDone
from memwal_core.tasks.ingest import plan_ingest, verify_ingest
from memwal_core.tasks.registry import REGISTRY_VARIABLE
from memwal_core.testing.tables import make_people_table

PARAMS: dict[str, object] = {
    "sources": ["a.parquet", "b.parquet"],
    "stream": "s",
    "batch": None,
    "format": None,
    "order_by": "at",
    "delete_column": None,
    "suites": ["mine.py"],
    "takeover": "fail",
    "dry_run": False,
    "storage_options": {"timeout": "5s"},
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


def test_plan_hands_the_form_to_the_job(table: BaseTable) -> None:
    (item,) = plan_ingest(_params(table), "day", "dag/run")

    arguments = item["arguments"]
    assert arguments[-3:] == ["--source", "a.parquet", "b.parquet"]
    for pair in (["--batch", "day"], ["--order-by", "at"], ["--suite", "mine.py"], ["--holder", "dag/run"]):
        assert arguments[arguments.index(pair[0]) + 1] == pair[1]
    assert "--ok-when-nothing" in arguments
    assert not {"--format", "--delete-column", "--dry-run"} & set(arguments)
    (dry,) = plan_ingest(_params(table, dry_run=True), "day", "dag/run")
    assert dry["dry_run"]
    assert "--dry-run" in dry["arguments"]


def test_a_batch_that_is_written_is_not_planned_again(table: BaseTable) -> None:
    _write(table, BatchId("s", "day"))

    assert plan_ingest(_params(table), "day", "dag/run") == []
    assert plan_ingest(_params(table, batch="day"), "other", "dag/run") == []
    assert len(plan_ingest(_params(table, stream="other"), "day", "dag/run")) == 1


def test_verify_reads_the_record_and_fails_without_one(table: BaseTable) -> None:
    planned = plan_ingest(_params(table), "day", "dag/run")
    with pytest.raises(InternalError, match="no record"):
        verify_ingest(planned)
    _write(table, BatchId("s", "day"))

    result = verify_ingest(planned)

    assert (result["rows"], result["regions"], result["batch"]) == (3, 1, "day")


@pytest.mark.req("WRT-88")
def test_suites_of_the_registry_come_before_those_of_the_form(
    table: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = tmp_path / "tables.toml"
    registry.write_text(f'[[tables]]\nname = "people"\nuri = "{table.uri}"\ninput_suites = ["people.json"]\n')
    monkeypatch.setenv(REGISTRY_VARIABLE, str(registry))

    (item,) = plan_ingest({**_params(table), "table": "people"}, "day", "dag/run")

    suites = [item["arguments"][place + 1] for place, name in enumerate(item["arguments"]) if name == "--suite"]
    assert suites == ["people.json", "mine.py"]
    assert item["target"]["uri"] == table.uri


def test_a_list_is_asked_for_where_one_is_needed(table: BaseTable) -> None:
    with pytest.raises(InvalidRequestError, match="list"):
        plan_ingest(_params(table, sources="a.parquet"), "day", "dag/run")
