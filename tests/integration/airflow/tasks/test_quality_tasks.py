"""What the quality DAG's tasks do, without Airflow and without Spark."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from memwal_core.airflow.tasks.on_spark import document_of
from memwal_core.airflow.tasks.work import plan_work, verify_work
from memwal_core.base_table import BaseTable
from memwal_core.errors import CorruptionError, InternalError, InvalidRequestError
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityRequest, Stages
from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, quality_of

PASSED = CheckResult(Check.KEY_UNIQUE, Result.PASSED, "version 3")
FAILED = CheckResult(Check.ROW_ARITHMETIC, Result.FAILED, "versions 2 to 3", "rows 4, expected_rows 5")


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), buckets=1)
    write_generations(made, [1, 2], name="new")
    return made


def folder_of(table: BaseTable) -> str:
    """The folder of a table's Data Docs: its name, told apart from others of that name by its address."""
    return f"people.lance-{hashlib.sha256(table.uri.encode()).hexdigest()[:8]}"


def params(made: BaseTable, **more: object) -> dict[str, object]:
    return {
        "table": made.uri,
        "stage": "both",
        "suites": [],
        "docs": None,
        "dry_run": False,
    } | more


def record(table: BaseTable, stage: Stage, *results: CheckResult) -> None:
    outcome = JobOutcome.BLOCKED if FAILED in results else JobOutcome.DONE
    report = QualityReport(table.uri, stage, outcome, 3, results, (), "2026-06-01T00:00:00+00:00", 1.0)
    quality_of(Table.open(table.uri)).record(report)


def test_plan_is_json_with_one_job_per_stage(table: BaseTable, suite_file: Path) -> None:
    items = plan_work("quality", params(table, suites=[suite_file.name], docs="s3://bucket/docs/"))

    before, after = (document_of(item, "memwal_quality/run") for item in json.loads(json.dumps(items)))
    assert before.request == {"stage": "before", "suites": [str(suite_file)], "docs": "s3://bucket/docs/"}
    assert (before.uri, before.storage_options, before.holder) == (table.uri, {}, "memwal_quality/run")
    # A failed check ends no Spark job: the task that verifies reads the report, and fails with the right runbook.
    assert before.ok_when_blocked
    assert before.ok_when_nothing
    assert after.parsed() == QualityRequest(stage=Stages.AFTER, suites=(str(suite_file),), docs="s3://bucket/docs/")


def test_nothing_waiting_leaves_only_the_checks_after_a_merge(table: BaseTable) -> None:
    Table.open(table.uri).run(MergeRequest())

    assert [item["label"] for item in plan_work("quality", params(table))] == [f"{table.uri}: after a merge"]
    assert plan_work("quality", params(table, stage="before")) == []


def test_dry_run_says_what_would_be_checked(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="memwal_core"):
        assert plan_work("quality", params(table, dry_run=True)) == []

    assert any("generation 1" in message for message in caplog.messages)


def test_merge_that_changed_a_table_has_it_checked(table: BaseTable) -> None:
    items = plan_work("quality", params(table, table=None, stage="after"), [{"table": table.uri}])

    assert [item["table"] for item in items] == [table.uri]
    with pytest.raises(InvalidRequestError, match="no table"):
        plan_work("quality", params(table, table=None))


def test_verdict_lists_what_passed(table: BaseTable) -> None:
    items = plan_work("quality", params(table, stage="after"))
    record(table, Stage.AFTER, PASSED)

    [change] = verify_work(items, [], "run")

    assert change["facts"] == {"checks": [{"stage": "after", "version": 3, "checks": 1, "docs": ""}]}
    assert change["summary"] == "1 checks after a merge"


def test_failed_check_names_evidence_and_runbook(table: BaseTable) -> None:
    items = plan_work("quality", params(table, stage="after"))
    record(table, Stage.AFTER, PASSED, FAILED)

    with pytest.raises(CorruptionError, match=r"docs/runbooks/check-failed\.md") as failed:
        verify_work(items, [], "run")

    assert failed.value.facts["failed"] == ["row_arithmetic: rows 4, expected_rows 5"]


def test_job_without_a_report_is_an_error(table: BaseTable) -> None:
    with pytest.raises(InternalError, match="no report"):
        verify_work(plan_work("quality", params(table, stage="after")), [], "run")


def test_planning_and_verifying_needs_no_great_expectations(table: BaseTable) -> None:
    # It takes seconds to import and logs hundreds of lines, in a worker that runs no check.
    program = (
        "import sys; from memwal_core.airflow.tasks.work import plan_work; "
        f"assert plan_work('quality', {params(table)!r}); assert 'great_expectations' not in sys.modules"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
