"""What the tasks of catch-up, snapshot, compaction and garbage collection do, without Airflow."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from memwal_core.airflow.tasks.cycle import (
    CycleResult,
    CycleTable,
    begin_cycle,
    choose_cycle_tables,
    end_cycle,
    prepare_step,
    require_passed,
)
from memwal_core.airflow.tasks.on_spark import document_of, result_of
from memwal_core.airflow.tasks.reminders import Reminders
from memwal_core.airflow.tasks.work import (
    WorkItem,
    WorkResult,
    do_work,
    hold_leases,
    plan_work,
    release_leases,
    verify_work,
)
from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock, SystemClock
from memwal_core.coordination.freeze import Choice
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.ledger import RunEnd, RunOutcome
from memwal_core.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    FrozenError,
    InternalError,
    InvalidRequestError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.jobs.cycle.plan import LeftOut, StepEnd, StepName
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.thaw.run import Decision
from memwal_core.observe.signals import Signal
from memwal_core.quality.model import Check, CheckResult, QualityReport, Result, Stage
from memwal_core.registry import REGISTRY_VARIABLE, load_registry
from memwal_core.table import Table
from memwal_core.writer import TableWriter
from testkit.clock import ManualClock
from testkit.tables.people import make_people_table, people, quality_of
from tests.integration.airflow.tasks.steps import run_step

RUN = "memwal_catchup/manual__2026-01-01T00:00:00+00:00"


@pytest.fixture
def merged(tmp_path: Path) -> BaseTable:
    """Two indexes that do not cover the rows of a merge."""
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(50)))
    for column in ("name", "score"):
        table.dataset().create_scalar_index(column, "BTREE", name=f"{column}_idx")
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40, 90)))
        writer.flush()
    Table.open(table.uri).run(MergeRequest())
    return table


def _params(table: BaseTable, **more: object) -> dict[str, object]:
    return {"table": table.uri, "dry_run": False, **more}


def _verified(table: BaseTable, items: list[WorkItem], results: list[WorkResult]) -> str:
    [change] = verify_work(items, results, RUN)
    assert (change["table"], change["uri"]) == (table.uri, table.uri)
    assert change["facts"] == {"version": max(result["facts"]["version"] for result in results)}
    return change["summary"]


def test_each_index_that_is_behind_is_one_piece_of_work(merged: BaseTable) -> None:
    items = json.loads(json.dumps(plan_work("catchup", _params(merged))))

    assert [item["request"] for item in items] == [{"indexes": ["name_idx"]}, {"indexes": ["score_idx"]}]
    assert [item["label"] for item in items] == [f"{merged.uri}: name_idx", f"{merged.uri}: score_idx"]


@pytest.mark.req("LEASE-42")
def test_work_carries_the_ticket_of_its_run_and_is_recorded_under_its_token(merged: BaseTable) -> None:
    held = hold_leases(plan_work("catchup", _params(merged)), RUN)

    results = [do_work(item, RUN) for item in json.loads(json.dumps(held))]

    assert {result["outcome"] for result in results} == {"done"}
    assert plan_work("catchup", _params(merged)) == []
    runs = Table.open(merged.uri).opened.ledger.runs("catchup")
    assert [(run.holder, run.fencing_token, run.outcome.value) for run in runs] == [(RUN, 1, "done")] * len(held)
    assert len(release_leases(held)) == len(held)


@pytest.mark.req("LEASE-42")
def test_work_is_fenced_when_another_run_has_its_lease(merged: BaseTable) -> None:
    held = hold_leases(plan_work("catchup", _params(merged)), RUN)
    release_leases(held)
    Table.open(merged.uri).opened.leases.acquire(JobKey.of_index("catchup", "name_idx"), "another run")
    version = merged.state().version

    with pytest.raises(FencedError) as fenced:
        do_work(held[0], RUN)

    assert fenced.value.exit_code == 5  # the exit code that is never tried again
    assert merged.state().version == version
    assert release_leases(held[:1]) == []


def test_verification_says_what_is_due_again_and_why_that_may_be(merged: BaseTable) -> None:
    items = plan_work("catchup", _params(merged))
    results = [do_work(item, RUN) for item in items]

    assert _verified(merged, items, results) == "nothing is due"
    with TableWriter.open(merged) as writer:
        writer.put(people(*range(90, 95)))
        writer.flush()
    Table.open(merged.uri).run(MergeRequest())
    assert _verified(merged, items, results) == "2 due again"


def test_index_that_is_behind_on_the_version_of_its_own_catch_up_is_an_error(merged: BaseTable) -> None:
    items = plan_work("catchup", _params(merged))
    first = do_work(items[0], RUN)

    with pytest.raises(InternalError) as failed:
        verify_work(items, [first], RUN)

    assert failed.value.facts["indexes"] == ["score_idx"]
    assert "docs/runbooks/index-lag.md" in str(failed.value)


def test_same_run_takes_its_lease_over_and_fences_its_first_attempt(merged: BaseTable) -> None:
    items = plan_work("catchup", _params(merged))
    first, second = hold_leases(items, RUN), hold_leases(items, RUN)

    with pytest.raises(FencedError):
        do_work(first[0], RUN)
    assert do_work(second[0], RUN)["outcome"] == "done"


def test_no_lease_is_kept_when_one_of_them_is_taken(merged: BaseTable) -> None:
    items = plan_work("catchup", _params(merged))
    leases = Table.open(merged.uri).opened.leases
    leases.acquire(JobKey.of_index("catchup", "score_idx"), "another run")

    with pytest.raises(ConflictError):
        hold_leases(items, RUN)

    stored = leases.read(JobKey.of_index("catchup", "name_idx"))
    assert stored is not None
    assert stored.document.released


def test_dry_run_and_nothing_to_do_give_no_work(merged: BaseTable) -> None:
    assert plan_work("catchup", _params(merged, dry_run=True)) == []
    assert plan_work("gc", _params(merged)) == []
    [item] = plan_work("snapshot", _params(merged))
    assert do_work(item, RUN)["outcome"] == "done"
    assert plan_work("snapshot", _params(merged)) == []


def test_run_that_was_triggered_works_on_the_tables_that_changed(merged: BaseTable) -> None:
    event = {"table": merged.uri, "version": 5}

    items = plan_work("snapshot", {"table": None}, [event, event])

    assert [item["table"] for item in items] == [merged.uri]
    with pytest.raises(InvalidRequestError, match="no table is named"):
        plan_work("snapshot", {"table": None})


def test_table_that_cannot_be_planned_keeps_no_other_that_changed_from_its_job(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was gone, or no longer registered, ended the run of all, whose changes started no other."""
    registry, gone = tmp_path / "tables.toml", tmp_path / "gone.lance"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(registry))
    entries = {"people": merged.uri, "gone": str(gone)}
    registry.write_text("".join(f"[[tables]]\nname = '{name}'\nuri = '{uri}'\n" for name, uri in entries.items()))
    changed = [{"table": name} for name in ("gone", "removed", "people")]
    told: list[tuple[str, str]] = []

    items = plan_work(
        "catchup", {"table": None}, changed, left_out=lambda table, error: told.append((table, type(error).__name__))
    )

    assert {item["table"] for item in items} == {"people"}
    assert told == [("gone", "ObjectNotFoundError"), ("removed", "InvalidRequestError")]
    with pytest.raises(ObjectNotFoundError):
        plan_work("catchup", {"table": None}, changed[:1])
    with pytest.raises(InvalidRequestError, match="not registered"):
        plan_work("catchup", {"table": "removed"}, left_out=lambda *_: None)


def test_unregistered_table_is_refused_when_a_registry_is_configured(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.toml"
    path.write_text("[[tables]]\nname = 'other'\nuri = 'other.lance'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    with pytest.raises(InvalidRequestError, match="not registered"):
        plan_work("snapshot", _params(merged))


@pytest.mark.req("LEASE-42")
def test_merge_jobs_get_one_ticket_and_a_second_run_gets_none(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    params = _params(table, regions=[], max_bytes=1)
    jobs = hold_leases(plan_work("merge", params), "run 1")

    assert [document_of(job, "run 1").ticket for job in jobs] == ["1@merge/table:run 1"] * 4
    with pytest.raises(ConflictError):
        hold_leases(plan_work("merge", params), "run 2")
    assert release_leases(jobs) == ["1@merge/table:run 1"]
    assert hold_leases([], "run 3") == []
    assert release_leases([]) == []


def test_cycle_chooses_registered_tables_that_are_due(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(f"[[tables]]\nname = 'people'\nuri = '{merged.uri}'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    [table] = choose_cycle_tables([], by_schedule=True)

    begin_cycle(table, "run 1")
    assert prepare_step("merge", table).outcome is JobOutcome.NOTHING_TO_DO
    assert run_step("catch_up", table, "run 1")["outcome"] == "done"
    assert run_step("collect_garbage", table, "run 1").outcome is JobOutcome.NOTHING_TO_DO
    assert choose_cycle_tables([], by_schedule=True) == []
    for names in ([], ["people", merged.uri]):
        assert [each["label"] for each in choose_cycle_tables(names, by_schedule=False)] == ["people"]
    with pytest.raises(InvalidRequestError, match="not registered"):
        choose_cycle_tables(["animals"], by_schedule=False)


def test_cycle_whose_run_a_person_has_ended_keeps_no_table_from_the_next_one(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end was never recorded, and the table was left alone until the run would have timed out: for a day."""
    table, asked = _registered(merged, tmp_path, monkeypatch), list[str]()
    begin_cycle(table, "memwal_maintain/run 1/2026-01-01T00:00:00.000000Z")
    later = ManualClock(SystemClock().now() + timedelta(hours=1))

    def chosen(*, lives: bool, clock: Clock = later) -> list[CycleTable]:
        def run_lives(run: str) -> bool:
            asked.append(run)
            return lives

        return choose_cycle_tables([], by_schedule=True, run_lives=run_lives, clock=clock)

    assert chosen(lives=True) == []
    assert chosen(lives=False) == [table]
    assert asked == ["run 1"] * 2
    assert chosen(lives=True, clock=ManualClock(later.now() + timedelta(days=1))) == [table]
    begin_cycle(table, "by hand")
    # One that was killed kept the table from its cycles for a day; leases keep those apart that live.
    assert chosen(lives=True) == [table]


def test_registered_table_that_is_gone_keeps_no_other_from_its_cycle(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.toml"
    entries = {"gone": str(tmp_path / "gone.lance"), "people": merged.uri}
    path.write_text("".join(f"[[tables]]\nname = '{name}'\nuri = '{uri}'\n" for name, uri in entries.items()))
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    chosen = choose_cycle_tables([], by_schedule=True)

    assert [each["label"] for each in chosen] == ["gone", "people"]
    with pytest.raises(ObjectNotFoundError):
        begin_cycle(chosen[0], "run 1")
    begin_cycle(chosen[1], "run 1")
    assert prepare_step("merge", chosen[1]).outcome is JobOutcome.NOTHING_TO_DO


def test_people_are_called_once_in_hours_for_a_table_that_cannot_be_opened(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock, kept = tmp_path / "tables.toml", ManualClock(SystemClock().now()), [None]
    gone, misspelt = f"name = 'gone'\nuri = '{tmp_path / 'gone.lance'}'", "name = 'misspelt'\nurl = 'x'"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    def chosen(*entries: str, after_s: float) -> list[str]:
        path.write_text("".join(f"[[tables]]\n{entry}\n" for entry in entries))
        clock.advance(after_s)
        reminders = Reminders(kept[-1])
        found = choose_cycle_tables([], by_schedule=True, reminders=reminders, clock=clock)
        kept.append(json.loads(json.dumps(reminders.to_dict())))
        return [each["table"] for each in found]

    assert chosen(gone, misspelt, after_s=0) == ["gone", "misspelt"]
    assert chosen(gone, misspelt, after_s=300) == []
    assert chosen(gone, misspelt, after_s=4 * 3600) == ["gone", "misspelt"]
    assert chosen(gone, after_s=300) == []
    assert chosen(gone, misspelt, after_s=300) == ["misspelt"]
    assert [each["table"] for each in choose_cycle_tables([], by_schedule=False)] == ["gone", "misspelt"]


@pytest.mark.parametrize(
    "document", [None, [], {"gone": "yesterday"}, {"gone": None}, {"gone": "9999-12-31T23:00-12:00"}]
)
def test_calls_that_are_not_understood_count_as_never(document: object) -> None:
    now = SystemClock().now()

    assert Reminders(document).call(["gone"], now, timedelta(hours=4)) == {"gone"}


def test_call_of_a_clock_that_ran_ahead_does_not_silence_a_table_for_longer() -> None:
    now = SystemClock().now()
    reminders = Reminders({"gone": (now + timedelta(days=365)).isoformat()})

    assert reminders.call(["gone"], now, timedelta(hours=4)) == {"gone"}
    assert reminders.call(["gone"], now, timedelta(hours=4)) == set()


@pytest.mark.req("O10")
def test_cycle_prepares_work_that_takes_the_lease_itself_wherever_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    path = tmp_path / "tables.toml"
    path.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\nconnection = 'lake'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "lance"}')
    [chosen] = choose_cycle_tables([], by_schedule=False)

    item = prepare_step("merge", chosen)
    monkeypatch.setenv("MEMWAL_DISPATCH__MAX_REGIONS", "3")
    large = prepare_step("merge", chosen)

    assert item == {
        "label": "people: merge",
        "table": "people",
        "job": "merge",
        "request": {"leave_held": True},
        "promise": {},
        "ticket": "",
        "to_spark": False,
        "where": item["where"],
        "planned": True,
    }
    assert item["where"].startswith("in the worker: ")
    assert large["to_spark"]
    assert large["where"] == ("as a Spark application: 4 regions are more than dispatch.max_regions, which is 3")
    document = document_of(item, "run 1")
    assert (document.job, document.holder, document.ticket, document.ok_when_nothing) == ("merge", "run 1", "", True)


def _cycle_table(table: BaseTable, *, ignore_pauses: bool = False) -> CycleTable:
    return CycleTable(label="people", table=table.uri, ignore_pauses=ignore_pauses)


def test_tasks_of_a_cycle_leave_out_the_steps_that_its_plan_leaves_out(merged: BaseTable) -> None:
    table = _cycle_table(merged)
    compacted, unchanged = (run_step("compact", table, "run 1") for _ in range(2))
    assert (compacted["outcome"], unchanged.outcome) == ("done", JobOutcome.NOTHING_TO_DO)
    assert json.loads(json.dumps(compacted)) == compacted

    after_change = run_step("catch_up_again", table, "run 1", compacted)
    skipped = run_step("catch_up_again", table, "run 1", {**compacted, "outcome": "nothing_to_do"})
    absent = run_step("catch_up_again", table, "run 1", None)

    changed_nothing = "compact changed nothing, so what ran before it still stands"
    assert after_change.why != changed_nothing  # it looked
    assert (skipped.why, absent.why) == (changed_nothing, changed_nothing)
    with pytest.raises(InvalidRequestError, match="no such step"):
        run_step("gc", table, "run 1")


def test_job_that_keeps_failing_pauses_in_a_cycle_of_tasks_too(merged: BaseTable) -> None:
    insight = Table.open(merged.uri).opened
    for job in ("merge", "snapshot"):
        for _ in range(3):
            run = insight.new_run(JobKey(job), "run 0")
            insight.ledger.end(run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError"))
    version = merged.state().version

    paused = run_step("snapshot", _cycle_table(merged), "run 1")

    assert (paused.end, paused.outcome) == (StepEnd.PAUSED, JobOutcome.CONFLICT)
    assert "3 failures in a row" in paused.why
    assert merged.state().version == version
    with TableWriter.open(merged) as writer:
        writer.put(people(100))
        writer.flush()
    assert prepare_step("merge", _cycle_table(merged)).end is StepEnd.PAUSED
    assert prepare_step("merge", _cycle_table(merged, ignore_pauses=True))["job"] == "merge"
    assert run_step("snapshot", _cycle_table(merged, ignore_pauses=True), "run 1")["outcome"] == "done"


def _registered(table: BaseTable, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CycleTable:
    path = folder / "tables.toml"
    path.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    return choose_cycle_tables([], by_schedule=False)[0]


def test_cycle_of_tasks_leaves_the_same_run_as_a_cycle_of_the_library(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, only its beginning was recorded, as a run that was done at once."""
    copy = str(tmp_path / "copy" / "people.lance")
    shutil.copytree(merged.uri, copy)
    library = Table.open(copy)
    with pytest.raises(FrozenError):
        library.run(MergeRequest())
    library.thaw(Decision(Choice.ACCEPT_COPY, "test"))
    library.run(MaintainRequest())
    [expected] = library.opened.ledger.runs("maintain")
    table = _registered(merged, tmp_path, monkeypatch)
    results: dict[str, CycleResult] = {}

    begin_cycle(table, "run 1")
    for step in StepName:
        ran = run_step(step, table, "run 1", results.get("compact"))
        if not isinstance(ran, LeftOut):
            results[step] = ran
    end_cycle(table, "run 1")
    end_cycle(table, "run 1")

    [found] = Table.open(merged.uri).opened.ledger.runs("maintain")
    assert found.facts["steps"] == expected.facts["steps"]
    assert (found.outcome, found.error, found.has_ended) == (expected.outcome, "", True)
    assert found.verdict


def test_cycle_that_failed_is_recorded_and_stays_begun(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _registered(merged, tmp_path, monkeypatch)
    begin_cycle(table, "run 1")
    began = Table.open(merged.uri).opened.ledger.runs("maintain")[-1].started
    opened = Table.open(merged.uri).opened
    with pytest.raises(UnavailableError), opened.ledger.run(opened.new_run(JobKey("merge"), "run 1")):
        raise UnavailableError("storage does not answer", remedy="try again")

    assert choose_cycle_tables([], by_schedule=True) == []
    assert end_cycle(table, "run 1") == "failed"
    [run] = opened.ledger.runs("maintain")
    assert (run.started, run.outcome, run.facts["steps"]["merge"]) == (began, RunOutcome.FAILED, "failed")
    assert "storage does not answer" in run.verdict
    assert choose_cycle_tables([], by_schedule=True) == []


def test_lease_of_a_run_that_died_after_its_work_is_taken_over_by_the_next_cycle(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no rows came any more, nothing was due, and the dead run paged as a stuck job for ever."""
    table = _registered(merged, tmp_path, monkeypatch)
    begin_cycle(table, "run 1")
    for step in StepName:
        run_step(step, table, "run 1")
    end_cycle(table, "run 1")
    later = ManualClock(SystemClock().now() + timedelta(hours=1))
    assert choose_cycle_tables([], by_schedule=True, clock=later) == []
    key = JobKey("merge")
    for hours, due in ((0, []), (1, [table])):  # The first may live still.
        begun = Table.open(merged.uri, clock=ManualClock(SystemClock().now() - timedelta(hours=hours))).opened
        begun.ledger.begin(begun.new_run(key, "dead", begun.leases.acquire(key, "dead").ticket.fencing_token))
        assert choose_cycle_tables([], by_schedule=True, clock=later) == due

    assert run_step("merge", table, "run 2")["outcome"] == "nothing_to_do"
    assert Table.open(merged.uri).health().value(Signal.STUCK_JOB) == 0
    assert choose_cycle_tables([], by_schedule=True, clock=later) == []


def test_cycle_that_is_cleared_is_recorded_anew(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history said for ever that it had failed, and the next one came although it worked again."""
    table, run = _registered(merged, tmp_path, monkeypatch), "memwal_maintain/run 1"
    opened = Table.open(merged.uri).opened
    begin_cycle(table, run)
    with pytest.raises(UnavailableError), opened.ledger.run(opened.new_run(JobKey("merge"), run)):
        raise UnavailableError("storage does not answer", remedy="try again")
    assert end_cycle(table, run) == "failed"

    begin_cycle(table, run)
    begin_cycle(table, run)
    later = ManualClock(SystemClock().now() + timedelta(hours=1))
    assert choose_cycle_tables([], by_schedule=True, run_lives=lambda name: name == "run 1", clock=later) == []
    run_step("catch_up", table, run)
    end_cycle(table, run)

    assert end_cycle(table, run) == "done"
    first, second = opened.ledger.runs("maintain")
    assert (first.outcome, second.outcome, second.holder) == (RunOutcome.FAILED, RunOutcome.DONE, run)
    assert (second.facts["steps"]["merge"], second.facts["steps"]["catch_up"]) == ("nothing_to_do", "done")


@pytest.mark.req("O1")
def test_gate_of_an_entry_takes_its_suites_to_spark_and_fails_where_the_table_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit of what is held fails no task; the check of a table does, with its runbook, unless it is advisory."""
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    (tmp_path / "suites").mkdir(mode=0o700)
    (tmp_path / "suites" / "rows.json").write_text("{}")
    path = tmp_path / "tables.toml"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    def chosen(entry: str) -> CycleTable:
        path.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n{entry}\n")
        return choose_cycle_tables([], by_schedule=False)[0]

    unchecked = prepare_step("audit", chosen(""))
    audit = prepare_step("audit", chosen("checks = 'mandatory'\nsuites = ['rows.json']"))
    check = prepare_step("check", chosen("checks = 'mandatory'"))

    assert isinstance(unchecked, LeftOut)
    assert unchecked.why == "no checks are asked for"
    assert not isinstance(audit, LeftOut)
    assert audit["to_spark"]
    assert audit["request"]["suites"] == [str(tmp_path / "suites" / "rows.json")]
    assert not isinstance(check, LeftOut)
    failed = CheckResult(Check.ROW_ARITHMETIC, Result.FAILED, "versions 1 to 2", "rows 3, expected_rows 4")
    for advisory in (False, True):
        report = QualityReport(table.uri, Stage.AFTER, JobOutcome.BLOCKED, 3, (failed,), (), "", 1.0, advisory=advisory)
        quality_of(Table.open(table.uri)).record(report)
        if not advisory:
            with pytest.raises(CorruptionError, match=r"docs/runbooks/check-failed\.md"):
                require_passed(check, "blocked")
    require_passed(check, "done")
    # Of an application that left no record nothing is known, least of all that the checks passed.
    unknown = result_of(check, "a run that nobody recorded", set())
    assert unknown["outcome"] == "conflict"
    quality_of(Table.open(table.uri)).record(
        QualityReport(table.uri, Stage.AFTER, JobOutcome.BLOCKED, 3, (failed,), (), "", 1.0)
    )
    with pytest.raises(CorruptionError):
        require_passed(check, unknown["outcome"])
    require_passed(audit, "blocked")
    gone = load_registry({REGISTRY_VARIABLE: str(path)})
    path.write_text(path.read_text() + "suites = ['gone.json']\n")
    broken = load_registry({REGISTRY_VARIABLE: str(path)})
    assert gone is not None
    assert broken is not None
    assert (len(gone.broken), [entry.name for entry in broken.broken]) == (0, ["people"])


def test_more_tables_than_airflow_maps_come_by_turns_by_schedule_and_are_refused_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow refused the list in words of its own, and no table at all was maintained."""
    path = tmp_path / "tables.toml"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    names = [f"table{number}" for number in range(9)]
    path.write_text("".join(f"[[tables]]\nname = '{name}'\nuri = '{tmp_path / name}'\n" for name in names))
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")

    turns = [choose_cycle_tables([], by_schedule=True) for _ in range(40)]

    assert {len(turn) for turn in turns} == {3}
    assert {each["table"] for turn in turns for each in turn} == set(names)
    with pytest.raises(InvalidRequestError, match="more tables than Airflow maps") as refused:
        choose_cycle_tables([], by_schedule=False)
    assert (refused.value.facts["tables"], refused.value.facts["most"]) == (9, 3)
    assert len(choose_cycle_tables(names[:3], by_schedule=False)) == 3


def test_more_pieces_than_airflow_maps_are_done_in_order_and_the_rest_is_due_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Leases were taken before Airflow refused the list, and nothing gave them back."""
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    every = plan_work("merge", _params(table, regions=[], max_bytes=1))
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "3")

    assert plan_work("merge", _params(table, regions=[], max_bytes=1)) == every[:3]
    assert "4 pieces of work are more than Airflow maps at once" in caplog.text
