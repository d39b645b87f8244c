"""The quality gate of a table's cycle: what it holds back, what it only reports, and when it need not look again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import Choice
from memwal_core.jobs.context import Progress, unwatched
from memwal_core.jobs.cycle.plan import StepEnd, StepName
from memwal_core.jobs.cycle.report import MaintainReport, StepReport
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.quality.request import QualityGate, QualityRequest
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.signals import Signal
from memwal_core.spark.executors import SparkExecutors
from memwal_core.table import Table
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:lance is not fork-safe"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

FAILED = "failed: merged_keys_present, row_arithmetic"


@pytest.fixture
def table(tmp_path: Path) -> BaseTable:
    """Ten rows that wait in one region."""
    made = make_people_table(str(tmp_path / "people.lance"), rows=people(1, 2), buckets=1)
    write_generations(made, range(10), name="new")
    return made


def run(
    table: BaseTable, spark: SparkSession, checks: QualityGate, progress: Progress = unwatched, **more: object
) -> MaintainReport:
    opened = Table.open(table.uri)
    executors = SparkExecutors(lambda: spark, opened.base)
    report: MaintainReport = opened.run(MaintainRequest(checks=checks, **more), executors=executors, progress=progress)
    return report


def step(report: MaintainReport, name: StepName) -> StepReport:
    return next(each for each in report.steps if each.step is name)


def lose_rows(table: BaseTable, through: int) -> None:
    """Record flushed MemTables as merged, with one of their ten rows."""
    regions = Table.open(table.uri).opened.manifests.region_ids()
    merge_natively(table, people(0, name="new"), dict.fromkeys(regions, through))


@pytest.mark.slow
def test_what_fails_is_held_until_a_person_accepts_it_and_fails_again_only_after_a_merge(table, spark):
    """O1: nothing compacts or collects after a failed check; one that was accepted is no alarm on the same rows."""
    lose_rows(table, 1)

    held = run(table, spark, QualityGate.MANDATORY)

    assert (held.outcome, step(held, StepName.CHECK).why) == (JobOutcome.BLOCKED, FAILED)
    assert {each.end for each in held.steps[held.steps.index(step(held, StepName.CHECK)) + 1 :]} == {
        StepEnd.NOT_REACHED
    }
    opened = Table.open(table.uri)
    assert opened.health().value(Signal.CHECK_FAILED) == 2
    opened.thaw(Decision(Choice.ACCEPT, by="ann", reason="test rows"))
    assert opened.health().value(Signal.CHECK_FAILED) == 0

    resting = run(table, spark, QualityGate.MANDATORY)
    again = Table.open(table.uri).run(QualityRequest(), executors=SparkExecutors(lambda: spark, table))

    assert step(resting, StepName.CHECK).why == "nothing was merged since the last checks"
    assert step(resting, StepName.SNAPSHOT).outcome is JobOutcome.DONE
    assert (again.outcome, again.why().partition(", ")[2]) == (JobOutcome.DONE, "2 failed as a person accepted")
    assert opened.opened.freezes.active() == ()

    write_generations(table, range(10, 20), name="newer")
    lose_rows(table, 2)
    lost = run(table, spark, QualityGate.MANDATORY)

    assert (lost.outcome, step(lost, StepName.CHECK).why) == (JobOutcome.BLOCKED, FAILED)


@pytest.mark.long
def test_advisory_gate_reports_and_holds_nothing(table, spark, tmp_path):
    """O1: neither a failed check, a failed suite, nor one that cannot be read keeps any other step from running."""
    suite = tmp_path / "names.json"
    never = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["other"]}}
    suite.write_text(json.dumps({"name": "names", "expectations": [never]}))
    lose_rows(table, 1)
    write_generations(table, range(20, 30), name="new")

    report = run(table, spark, QualityGate.ADVISORY, suites=(str(suite),))

    assert report.outcome is JobOutcome.DONE
    assert step(report, StepName.AUDIT).why == "failed, only reported: user_suite"
    assert step(report, StepName.MERGE).outcome is JobOutcome.DONE
    assert step(report, StepName.SNAPSHOT).outcome is JobOutcome.DONE
    opened = Table.open(table.uri)
    assert (opened.opened.freezes.active(), opened.health().value(Signal.CHECK_FAILED)) == ((), 0)
    broken = run(table, spark, QualityGate.ADVISORY, suites=(str(tmp_path / "gone.json"),))
    assert "not a file" in step(broken, StepName.AUDIT).why
    assert step(broken, StepName.COLLECT_GARBAGE).end is StepEnd.RAN


@pytest.mark.long
def test_audit_leaves_out_what_fails_and_looks_again_when_a_suite_changes(table, spark, tmp_path):
    """O1: what is held is not audited again until it would be by another suite; the merge and all after it go on."""
    suite = tmp_path / "names.json"

    def expect(name: str) -> None:
        rule = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": [name]}}
        suite.write_text(json.dumps({"name": "names", "expectations": [rule]}))

    expect("other")
    held = run(table, spark, QualityGate.MANDATORY, suites=(str(suite),))

    assert (held.outcome, step(held, StepName.AUDIT).why) == (JobOutcome.BLOCKED, "failed: user_suite")
    assert step(held, StepName.MERGE).outcome is JobOutcome.PARTIAL
    assert step(held, StepName.COLLECT_GARBAGE).end is StepEnd.RAN
    resting = run(table, spark, QualityGate.MANDATORY, suites=(str(suite),))
    assert (resting.outcome, step(resting, StepName.AUDIT).outcome) == (JobOutcome.PARTIAL, JobOutcome.NOTHING_TO_DO)
    expect("new")
    changed = run(table, spark, QualityGate.MANDATORY, suites=(str(suite),))
    assert step(changed, StepName.AUDIT).outcome is JobOutcome.DONE


@pytest.mark.slow
def test_what_is_flushed_between_audit_and_merge_waits_for_the_next_audit(table, spark, tmp_path):
    """Rows that no audit had seen were merged by a cycle whose gate was mandatory."""
    suite = tmp_path / "names.json"
    only_new = {"type": "expect_column_values_to_be_in_set", "kwargs": {"column": "name", "value_set": ["new"]}}
    suite.write_text(json.dumps({"name": "names", "expectations": [only_new]}))
    late = iter([partial(write_generations, table, range(10, 20), name="late")])

    def flush_before_the_merge(stage: str, done: int, _total: int) -> None:
        if stage == "steps" and done == list(StepName).index(StepName.MERGE):
            next(late, lambda: None)()

    first = run(table, spark, QualityGate.MANDATORY, flush_before_the_merge, suites=(str(suite),))
    names = table.dataset(table.state().version).to_table(columns=["name"]).column(0).unique().to_pylist()
    second = run(table, spark, QualityGate.MANDATORY, suites=(str(suite),))

    assert (step(first, StepName.AUDIT).outcome, names) == (JobOutcome.DONE, ["new"])
    assert "1 flushed MemTable of 1 region waits for the next audit" in step(first, StepName.MERGE).why
    assert step(second, StepName.AUDIT).why == "failed: user_suite"
    assert step(second, StepName.MERGE).outcome is JobOutcome.PARTIAL
