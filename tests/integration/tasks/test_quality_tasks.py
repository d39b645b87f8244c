"""What the quality DAG's tasks do, without Airflow and without Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.cli.quality import open_quality
from memwal_core.errors import CorruptionError, InternalError, InvalidRequestError
from memwal_core.maintenance.outcome import JobOutcome
from memwal_core.quality import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.tasks.quality import judge_quality, plan_quality
from memwal_core.testing.garbage import write_generations
from memwal_core.testing.tables import make_people_table

PASSED = CheckResult(Check.KEY_UNIQUE, Result.PASSED, "version 3")
FAILED = CheckResult(Check.ROW_ARITHMETIC, Result.FAILED, "versions 2 to 3", "rows 4, expected_rows 5")


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    made = make_people_table(str(tmp_path / "people.lance"), buckets=1)
    write_generations(made, [1, 2], name="new")
    return made


def params(made: BaseTable, **more: object) -> dict[str, object]:
    return {
        "table": made.uri,
        "stage": "both",
        "suites": [],
        "docs": None,
        "dry_run": False,
        "storage_options": {},
    } | more


def record(table: BaseTable, stage: Stage, *results: CheckResult) -> None:
    outcome = JobOutcome.BLOCKED if FAILED in results else JobOutcome.DONE
    report = QualityReport(table.uri, stage, outcome, 3, results, (), "2026-06-01T00:00:00+00:00", 1.0)
    open_quality(TableAdmin.open(table.uri)).record(report)


def test_plan_is_json_with_one_job_per_stage(table: BaseTable) -> None:
    items = plan_quality(
        params(table, suites=["names.json"], docs="s3://bucket/docs/", storage_options={"timeout": "5s"}),
        holder="memwal_quality/run",
    )

    before, after = json.loads(json.dumps(items))
    assert before["arguments"][:4] == ["--uri", table.uri, "--stage", "before"]
    assert before["arguments"][-4:] == ["--suite", "names.json", "--storage-option", "timeout=5s"]
    assert [part for part in before["arguments"] if part.startswith("s3://bucket/docs/")]
    assert [each["arguments"][6:8] for each in (before, after)] == [["--holder", "memwal_quality/run"]] * 2
    assert after["arguments"][:4] == ["--uri", table.uri, "--stage", "after"]
    assert "--suite" not in after["arguments"]


def test_nothing_waiting_leaves_only_the_checks_after_a_merge(table: BaseTable) -> None:
    TableAdmin.open(table.uri).merge()

    assert [item["stage"] for item in plan_quality(params(table))] == ["after"]
    assert plan_quality(params(table, stage="before")) == []


def test_dry_run_says_what_would_be_checked(table: BaseTable, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="memwal_core.tasks.quality"):
        assert plan_quality(params(table, dry_run=True)) == []

    assert any("generation 1" in message for message in caplog.messages)


def test_merge_that_changed_a_table_has_it_checked(table: BaseTable) -> None:
    items = plan_quality(params(table, table=None, stage="after"), [{"table": table.uri}])

    assert [item["target"]["uri"] for item in items] == [table.uri]
    with pytest.raises(InvalidRequestError, match="no table"):
        plan_quality(params(table, table=None))


def test_verdict_lists_what_passed(table: BaseTable) -> None:
    items = plan_quality(params(table, stage="after"))
    record(table, Stage.AFTER, PASSED)

    [verdict] = judge_quality(items)

    assert (verdict["stage"], verdict["version"], verdict["checks"]) == ("after", 3, 1)


def test_failed_check_names_evidence_and_runbook(table: BaseTable) -> None:
    items = plan_quality(params(table, stage="after"))
    record(table, Stage.AFTER, PASSED, FAILED)

    with pytest.raises(CorruptionError, match=r"docs/runbooks/check-failed\.md") as failed:
        judge_quality(items)

    assert failed.value.facts["failed"] == ["row_arithmetic: rows 4, expected_rows 5"]


def test_job_without_a_report_is_an_error(table: BaseTable) -> None:
    with pytest.raises(InternalError, match="no report"):
        judge_quality(plan_quality(params(table, stage="after")))
