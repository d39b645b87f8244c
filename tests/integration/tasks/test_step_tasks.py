"""What the tasks of catch-up, snapshot, compaction and garbage collection do, without Airflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memwal_core.admin import TableAdmin
from memwal_core.base_table import BaseTable
from memwal_core.errors import ConflictError, FencedError, InternalError, InvalidRequestError, ObjectNotFoundError
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.ledger import RunEnd, RunOutcome
from memwal_core.tasks.cycle import CycleTable, begin_cycle, choose_cycle_tables, cycle_step
from memwal_core.tasks.merge import hold_lease, plan_merge, release_lease
from memwal_core.tasks.registry import REGISTRY_VARIABLE
from memwal_core.tasks.steps import hold_leases, plan_step, release_leases, run_step, verify_steps
from memwal_core.tasks.targets import Target
from memwal_core.testing.tables import make_people_table, people
from memwal_core.writer import TableWriter

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
    TableAdmin.open(table.uri).merge()
    return table


def _params(table: BaseTable, **more: object) -> dict[str, object]:
    return {"table": table.uri, "dry_run": False, "storage_options": {}, "storage_connection": None, **more}


def test_each_index_that_is_behind_is_one_piece_of_work(merged: BaseTable) -> None:
    items = json.loads(json.dumps(plan_step("catchup", _params(merged))))

    assert {item["index"] for item in items} == {"name_idx", "score_idx"}
    assert all(item["label"] == f"{merged.uri}: {item['index']}" for item in items)


@pytest.mark.req("LEASE-42")
def test_work_carries_the_ticket_of_its_run_and_is_recorded_under_its_token(merged: BaseTable) -> None:
    held = hold_leases(plan_step("catchup", _params(merged)), RUN)

    results = [run_step(item, RUN) for item in json.loads(json.dumps(held))]

    assert {result["outcome"] for result in results} == {"done"}
    assert plan_step("catchup", _params(merged)) == []
    runs = TableAdmin.open(merged.uri).insight.ledger.runs("catchup")
    assert [(run.holder, run.fencing_token, run.outcome.value) for run in runs] == [(RUN, 1, "done")] * len(held)
    assert len(release_leases(held)) == len(held)


@pytest.mark.req("LEASE-42")
def test_work_is_fenced_when_another_run_has_its_lease(merged: BaseTable) -> None:
    held = hold_leases(plan_step("catchup", _params(merged)), RUN)
    release_leases(held)
    TableAdmin.open(merged.uri).insight.leases.acquire(JobKey.of_index("catchup", held[0]["index"]), "another run")
    version = merged.state().version

    with pytest.raises(FencedError) as fenced:
        run_step(held[0], RUN)

    assert fenced.value.exit_code == 5  # the exit code that is never tried again
    assert merged.state().version == version
    assert release_leases(held[:1]) == []


def test_verification_says_what_is_due_again_and_why_that_may_be(merged: BaseTable) -> None:
    items = plan_step("catchup", _params(merged))
    results = [run_step(item, RUN) for item in items]

    assert verify_steps(items, results) == f"{merged.uri}: nothing is due"
    with TableWriter.open(merged) as writer:
        writer.put(people(*range(90, 95)))
        writer.flush()
    TableAdmin.open(merged.uri).merge()
    assert verify_steps(items, results) == f"{merged.uri}: 2 due again"


def test_index_that_is_behind_on_the_version_of_its_own_catch_up_is_an_error(merged: BaseTable) -> None:
    items = plan_step("catchup", _params(merged))
    first = run_step(items[0], RUN)

    with pytest.raises(InternalError) as failed:
        verify_steps(items, [first])

    assert failed.value.facts["indexes"] == [items[1]["index"]]
    assert "docs/runbooks/index-lag.md" in str(failed.value)


def test_same_run_takes_its_lease_over_and_fences_its_first_attempt(merged: BaseTable) -> None:
    items = plan_step("catchup", _params(merged))
    first, second = hold_leases(items, RUN), hold_leases(items, RUN)

    with pytest.raises(FencedError):
        run_step(first[0], RUN)
    assert run_step(second[0], RUN)["outcome"] == "done"


def test_no_lease_is_kept_when_one_of_them_is_taken(merged: BaseTable) -> None:
    items = plan_step("catchup", _params(merged))
    leases = TableAdmin.open(merged.uri).insight.leases
    leases.acquire(JobKey.of_index("catchup", items[-1]["index"]), "another run")

    with pytest.raises(ConflictError):
        hold_leases(items, RUN)

    stored = leases.read(JobKey.of_index("catchup", items[0]["index"]))
    assert stored is not None
    assert stored.document.released


def test_dry_run_and_nothing_to_do_give_no_work(merged: BaseTable) -> None:
    assert plan_step("catchup", _params(merged, dry_run=True)) == []
    assert plan_step("gc", _params(merged)) == []
    [item] = plan_step("snapshot", _params(merged))
    assert run_step(item, RUN)["outcome"] == "done"
    assert plan_step("snapshot", _params(merged)) == []


def test_run_that_was_triggered_works_on_the_tables_that_changed(merged: BaseTable) -> None:
    event = {"table": merged.uri, "connection": "", "version": 5}

    items = plan_step("snapshot", {"table": None}, [event, event])

    assert [item["target"]["uri"] for item in items] == [merged.uri]
    with pytest.raises(InvalidRequestError, match="no table is named"):
        plan_step("snapshot", {"table": None})


def test_unregistered_table_is_refused_when_a_registry_is_configured(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.toml"
    path.write_text("[[tables]]\nname = 'other'\nuri = 'other.lance'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    with pytest.raises(InvalidRequestError, match="not registered"):
        plan_step("snapshot", _params(merged))


@pytest.mark.req("LEASE-42")
def test_merge_jobs_get_one_ticket_and_a_second_run_gets_none(tmp_path: Path) -> None:
    table = make_people_table(str(tmp_path / "people.lance"))
    with TableWriter.open(table) as writer:
        writer.put(people(*range(40)))
        writer.flush()
    params = {**_params(table), "regions": [], "max_bytes": 1}
    jobs = hold_lease(plan_merge(params), "run 1")  # type: ignore[arg-type]

    assert {tuple(job["arguments"][:2]) for job in jobs} == {("--lease", "1@merge/table:run 1")}
    with pytest.raises(ConflictError):
        hold_lease(plan_merge(params), "run 2")  # type: ignore[arg-type]
    assert release_lease(jobs) == ["1@merge/table:run 1"]
    assert hold_lease([], "run 3") == []
    assert release_lease([]) == []


def test_cycle_chooses_registered_tables_that_are_due(
    merged: BaseTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tables.toml"
    path.write_text(f"[[tables]]\nname = 'people'\nuri = '{merged.uri}'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))
    [table] = choose_cycle_tables([], by_schedule=True)

    assert begin_cycle(table, "run 1") is None  # everything is merged
    assert cycle_step("catch_up", table, "run 1")["outcome"] == "done"
    assert cycle_step("collect_garbage", table, "run 1")["outcome"] == "nothing_to_do"
    assert choose_cycle_tables([], by_schedule=True) == []
    assert [each["label"] for each in choose_cycle_tables([], by_schedule=False)] == ["people"]
    with pytest.raises(InvalidRequestError, match="not registered"):
        choose_cycle_tables(["animals"], by_schedule=False)


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
    assert begin_cycle(chosen[1], "run 1") is None


def test_cycle_prepares_a_spark_job_that_takes_the_lease_itself(
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

    assert begin_cycle(chosen, "run 1") == {
        "name": "merge people",
        "application_args": ["--uri", table.uri, "--ok-when-nothing", "--holder", "run 1"],
        "storage_connection": "lake",
    }


def _cycle_table(table: BaseTable, *, ignore_pauses: bool = False) -> CycleTable:
    target = Target(name="people", uri=table.uri, connection="", storage_options={})
    return CycleTable(
        label="people", target=target, collect_garbage=False, remove_versions=False, ignore_pauses=ignore_pauses
    )


def test_tasks_of_a_cycle_leave_out_the_steps_that_its_plan_leaves_out(merged: BaseTable) -> None:
    table = _cycle_table(merged)
    compacted, unchanged = (cycle_step("compact", table, "run 1") for _ in range(2))
    assert (compacted["outcome"], unchanged["outcome"]) == ("done", "nothing_to_do")

    after_change = cycle_step("catch_up_again", table, "run 1", compacted)
    skipped = cycle_step("catch_up_again", table, "run 1", unchanged)
    absent = cycle_step("catch_up_again", table, "run 1", None)

    assert (after_change["ran"], skipped["ran"], absent["ran"]) == (True, False, False)
    assert skipped["why"] == "compact changed nothing, so what ran before it still stands"
    assert json.loads(json.dumps(after_change)) == after_change
    with pytest.raises(InvalidRequestError, match="no such step"):
        cycle_step("gc", table, "run 1")


def test_job_that_keeps_failing_pauses_in_a_cycle_of_tasks_too(merged: BaseTable) -> None:
    insight = TableAdmin.open(merged.uri).insight
    for job in ("merge", "snapshot"):
        for _ in range(3):
            run = insight.new_run(JobKey(job), "run 0")
            insight.ledger.end(run, RunEnd(run.started, RunOutcome.FAILED, error="UnavailableError"))
    version = merged.state().version

    paused = cycle_step("snapshot", _cycle_table(merged), "run 1")

    assert (paused["ran"], paused["outcome"], paused["result"]) == (False, "conflict", None)
    assert "3 failures in a row" in paused["why"]
    assert merged.state().version == version
    with TableWriter.open(merged) as writer:
        writer.put(people(100))
        writer.flush()
    assert begin_cycle(_cycle_table(merged), "run 1") is None
    assert "merge left out" in insight.ledger.runs("maintain")[-1].verdict
    assert begin_cycle(_cycle_table(merged, ignore_pauses=True), "run 1") is not None
    assert cycle_step("snapshot", _cycle_table(merged, ignore_pauses=True), "run 1")["ran"]
