"""What the merge DAG's tasks do, without Airflow."""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path

import pytest

from memwal_core.airflow.tasks.on_spark import document_of
from memwal_core.airflow.tasks.work import plan_work, request_of, verify_work
from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.ids import parse_region_id
from memwal_core.jobs.document import parse_job
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.verify.facts import VERIFY
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.tables.people import make_people_table, people

PAGE = Path(__file__).resolve().parents[4] / "docs" / "operating.md"


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(made) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    return made


def _params(table: BaseTable, **more: object) -> dict[str, object]:
    return {"table": table.uri, "regions": [], "max_bytes": None, "dry_run": False, **more}


def test_plan_is_json_with_the_document_of_the_job(table: BaseTable) -> None:
    items = plan_work("merge", _params(table, max_bytes=1 << 20))

    [item] = json.loads(json.dumps(items))
    assert item["label"].startswith(f"{table.uri}: job 1 of 1: 4 regions, 4 generations, ")
    through = item["promise"]["through"]
    assert set(through.values()) == {1}
    document = parse_job(document_of(item, "dag/run").to_text())
    regions = tuple(sorted(map(parse_region_id, through)))
    assert document.parsed() == request_of(item) == MergeRequest(regions=regions, max_bytes=1 << 20)
    assert (document.job, document.uri, document.holder, document.ticket) == (
        "merge",
        table.uri,
        "dag/run",
        "",
    )
    assert document.storage_options == {}  # secrets go their own way, and a form has no options
    assert document.ok_when_nothing
    assert not document.ok_when_blocked


def test_selected_regions_alone_are_planned(table: BaseTable) -> None:
    [everything] = plan_work("merge", _params(table))
    chosen = min(everything["promise"]["through"])

    [item] = plan_work("merge", _params(table, regions=[chosen]))

    assert item["promise"]["through"] == {chosen: 1}
    assert item["request"]["regions"] == [chosen]


def test_bytes_of_a_job_bound_its_regions(table: BaseTable) -> None:
    items = plan_work("merge", _params(table, max_bytes=1))

    assert [len(item["promise"]["through"]) for item in items] == [1, 1, 1, 1]
    assert [item["request"]["regions"] for item in items] == [list(item["promise"]["through"]) for item in items]


def test_every_region_gets_a_verdict_in_the_log(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="memwal_core.airflow.tasks.work"):
        assert plan_work("merge", _params(table, dry_run=True)) == []

    verdicts = [line for line in caplog.messages if line.startswith(f"{table.uri}: region: ")]
    assert len(verdicts) == 4
    assert all("merged: 0  takes: 1  waiting: 1  why: complete  due: not due yet" in line for line in verdicts)
    assert caplog.messages[-1] == f"{table.uri}: dry run: nothing is changed"


@pytest.mark.req("MRG-27")
def test_merged_table_has_an_empty_plan_that_says_so(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    Table.open(table.uri).run(MergeRequest())

    with caplog.at_level(logging.INFO, logger="memwal_core.airflow.tasks.work"):
        assert plan_work("merge", _params(table)) == []

    assert caplog.messages[-1] == f"{table.uri}: nothing to do: every flushed MemTable is merged"


def test_table_where_no_region_can_be_merged_is_an_error_and_not_an_empty_plan(table: BaseTable) -> None:
    for generation in Path(table.uri).glob("_mem_wal/*/*_gen_1"):
        shutil.rmtree(generation / "_versions")

    for params in (_params(table), _params(table, dry_run=True)):
        with pytest.raises(CorruptionError, match=r"docs/runbooks/generation-hole\.md") as stuck:
            plan_work("merge", params)

    assert len(stuck.value.facts["regions"]) == 4  # type: ignore[arg-type]


def test_unknown_region_is_refused(table: BaseTable) -> None:
    with pytest.raises(InvalidRequestError, match="no such region"):
        plan_work("merge", _params(table, regions=["00000000-0000-4000-8000-000000000000"]))


def test_verification_says_what_it_found_as_the_page_does(table: BaseTable) -> None:
    items = plan_work("merge", _params(table))
    Table.open(table.uri).run(MergeRequest())

    [change] = verify_work(items, [None], "test")

    assert change["summary"].endswith("4 regions merged as planned, 40 rows, every key once")
    assert (change["facts"]["rows"], change["facts"]["version"]) == (40, table.state().version)
    assert change["facts"]["generations"] == items[0]["promise"]["through"]
    [proof] = Table.open(table.uri).opened.ledger.runs(VERIFY.job)
    assert (proof.key, proof.holder, proof.facts["rows"]) == (VERIFY, "test", 40)
    [text] = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    [shown] = json.loads(text)["tables"]
    number = re.compile(r"[\d,]+\d|\d")
    assert number.sub("n", shown["summary"]) == number.sub("n", change["summary"])
    assert (set(shown), set(shown["facts"])) == (set(change), set(change["facts"]))


def test_verification_before_the_merge_fails(table: BaseTable) -> None:
    items = plan_work("merge", _params(table))

    with pytest.raises(CorruptionError, match="not recorded as merged"):
        verify_work(items, [None], "test")
