"""What the merge DAG's tasks do, without Airflow."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.tasks.merge import MergeParams, plan_merge, verify_merge
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(made) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    return made


def _params(table: BaseTable, **more: object) -> MergeParams:
    base = {"table": table.uri, "regions": [], "max_bytes": None, "dry_run": False, "storage_options": {}}
    return MergeParams(**{**base, **more})  # type: ignore[typeddict-item]


def test_plan_is_json_with_the_arguments_of_the_job(table: BaseTable) -> None:
    items = plan_merge(_params(table, max_bytes=1 << 20, storage_options={"timeout": "5s"}))

    [item] = json.loads(json.dumps(items))
    assert item["label"].startswith("job 1 of 1: 4 regions, 4 generations, ")
    assert item["arguments"][:7] == [
        "--uri", table.uri, "--ok-when-nothing", "--max-bytes", str(1 << 20), "--storage-option", "timeout=5s",
    ]  # fmt: skip
    assert item["arguments"][7] == "--regions"
    assert sorted(item["arguments"][8:]) == sorted(item["through"])
    assert set(item["through"].values()) == {1}


def test_selected_regions_alone_are_planned(table: BaseTable) -> None:
    [everything] = plan_merge(_params(table))
    chosen = min(everything["through"])

    [item] = plan_merge(_params(table, regions=[chosen]))

    assert item["through"] == {chosen: 1}


def test_bytes_of_a_job_bound_its_regions(table: BaseTable) -> None:
    assert [len(item["through"]) for item in plan_merge(_params(table, max_bytes=1))] == [1, 1, 1, 1]


def test_every_region_gets_a_verdict_in_the_log(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="memwal_core.tasks.merge"):
        assert plan_merge(_params(table, dry_run=True)) == []

    verdicts = [line for line in caplog.messages if line.startswith("region ")]
    assert len(verdicts) == 4
    assert all("merged 0, waiting 1, complete" in line for line in verdicts)
    assert caplog.messages[-1] == "dry run: nothing is changed"


@pytest.mark.req("MRG-27")
def test_merged_table_has_an_empty_plan_that_says_so(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    TableAdmin.open(table.uri).merge()

    with caplog.at_level(logging.INFO, logger="memwal_core.tasks.merge"):
        assert plan_merge(_params(table)) == []

    assert "nothing to do: every flushed MemTable is merged" in caplog.messages


def test_table_where_no_region_can_be_merged_is_an_error_and_not_an_empty_plan(table: BaseTable) -> None:
    for generation in Path(table.uri).glob("_mem_wal/*/*_gen_1"):
        shutil.rmtree(generation / "_versions")

    with pytest.raises(CorruptionError, match="somebody has looked") as stuck:
        plan_merge(_params(table))

    assert len(stuck.value.facts["regions"]) == 4  # type: ignore[arg-type]


def test_unknown_region_is_refused(table: BaseTable) -> None:
    with pytest.raises(InvalidRequestError, match="no such region"):
        plan_merge(_params(table, regions=["00000000-0000-4000-8000-000000000000"]))


def test_verification_says_what_it_found(table: BaseTable) -> None:
    params = _params(table)
    items = plan_merge(params)
    TableAdmin.open(table.uri).merge()

    assert verify_merge(items, "test")["summary"].endswith("4 regions are merged as planned, 40 rows, every key once")


def test_verification_before_the_merge_fails(table: BaseTable) -> None:
    params = _params(table)

    with pytest.raises(CorruptionError, match="not recorded as merged"):
        verify_merge(plan_merge(params), "test")
