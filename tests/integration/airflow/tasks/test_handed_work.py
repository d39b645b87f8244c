"""What tasks hand to each other can be changed by whoever may clear them: nothing else than work is taken for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memwal_core.airflow.tasks.cycle import begin_cycle, end_cycle, prepare_step
from memwal_core.airflow.tasks.tables import find_table, open_table
from memwal_core.airflow.tasks.work import (
    WorkItem,
    do_work,
    hold_leases,
    plan_work,
    release_leases,
    require_job,
    verify_work,
)
from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import InvalidRequestError
from memwal_core.registry import REGISTRY_VARIABLE
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[WorkItem]:
    table = make_people_table(str(tmp_path / "people.lance"), buckets=1)
    write_generations(table, [1, 2], name="new")
    registry = tmp_path / "tables.toml"
    registry.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n")
    monkeypatch.setenv(REGISTRY_VARIABLE, str(registry))
    return plan_work("merge", {"table": "people"})


def test_planned_work_is_taken(planned: list[WorkItem]) -> None:
    require_job(planned, "merge")

    assert release_leases(planned) == []


def test_table_that_left_the_registry_keeps_no_other_lease_of_its_run(planned: list[WorkItem], tmp_path: Path) -> None:
    """No lease of the run was given back, and other runs waited until they had all ended."""
    gone = make_people_table(str(tmp_path / "gone.lance"), buckets=1)
    write_generations(gone, [1], name="new")
    registry = tmp_path / "tables.toml"
    before = registry.read_text()
    registry.write_text(f"{before}\n[[tables]]\nname = 'gone'\nuri = '{gone.uri}'\n")
    held = hold_leases([*plan_work("merge", {"table": "gone"}), *planned], "run")
    registry.write_text(before)

    returned = release_leases(held)

    assert returned == [held[-1]["ticket"]]
    leases = open_table(find_table("people")).opened.leases
    assert leases.in_other_hands(JobKey("merge"), "another run") is None


def test_table_that_gets_an_entry_between_the_tasks_of_a_run_is_merged_and_verified(
    planned: list[WorkItem], tmp_path: Path
) -> None:
    """Its work named the address: no task found its ticket, a lease was left behind, and no proof found its pieces."""
    registry, uri = tmp_path / "tables.toml", str(tmp_path / "people.lance")
    entry = registry.read_text()
    registry.write_text(f"include = [{{pattern = '{tmp_path}/*'}}]\n")
    by_address = plan_work("merge", {"table": uri})
    assert by_address[0]["table"] != planned[0]["table"]
    registry.write_text(entry)

    held = hold_leases(by_address, "run")
    done = [do_work(item, "run") for item in held]
    [change] = verify_work(held, done, "run")

    assert (change["table"], change["uri"]) == ("people", uri)
    assert release_leases(held) == [held[0]["ticket"]]


def test_leases_of_all_tables_of_a_run_are_given_back(planned: list[WorkItem], tmp_path: Path) -> None:
    """Tickets of two tables may read alike: only the last one's lease was given back."""
    other = make_people_table(str(tmp_path / "other.lance"), buckets=1)
    write_generations(other, [1], name="new")
    registry = tmp_path / "tables.toml"
    registry.write_text(f"{registry.read_text()}\n[[tables]]\nname = 'other'\nuri = '{other.uri}'\n")
    held = hold_leases([*planned, *plan_work("merge", {"table": "other"})], "run")
    assert len({item["ticket"] for item in held}) == 1

    assert len(release_leases(held)) == 2

    for name in ("people", "other"):
        assert open_table(find_table(name)).opened.leases.in_other_hands(JobKey("merge"), "another run") is None


@pytest.mark.parametrize(
    "change",
    [
        json.dumps,  # As Airflow 3.1 stores what is written over the API.
        lambda _: None,
        lambda _: 5,
        lambda items: items[0],
        lambda items: [*items, "work"],
        lambda items: [{**items[0], "more": 1}],
        lambda items: [{name: value for name, value in items[0].items() if name != "ticket"}],
        lambda items: [{**items[0], "table": 5}],
        lambda items: [{**items[0], "request": "{}"}],
    ],
)
def test_what_is_no_work_is_refused_once_and_for_all(planned: list[WorkItem], change: Any) -> None:
    changed = change(planned)

    for receive in (lambda: require_job(changed, "merge"), lambda: release_leases(changed)):
        with pytest.raises(InvalidRequestError, match="not what the task before it returns") as refused:
            receive()

        assert "`plan`" in refused.value.remedy


CHOSEN = {"label": "people", "table": "people", "ignore_pauses": False}


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    "table",
    [
        json.dumps(CHOSEN), None, 5, [CHOSEN], {}, {"label": "people", "table": "people"}, {**CHOSEN, "more": 1},
        {**CHOSEN, "table": 5}, {**CHOSEN, "ignore_pauses": "no"}, {**CHOSEN, "label": None},
    ],
)  # fmt: skip
def test_cycle_of_what_is_no_table_is_refused_once_and_for_all(table: Any) -> None:
    """It was a TypeError or KeyError, which was tried again and again; "no" ignored pauses."""
    for receive in (
        lambda: begin_cycle(table, "run"),
        lambda: end_cycle(table, "run"),
        lambda: prepare_step("merge", table),
    ):
        with pytest.raises(InvalidRequestError, match="not what the task before it returns") as refused:
            receive()

        assert "`tables`" in refused.value.remedy


@pytest.mark.parametrize("said", [5, ["x"], "x" * 2000, "it failed\nmaintenance failed [table=b]", None])
def test_report_of_a_cycle_tells_of_a_step_what_is_a_line(planned: list[WorkItem], said: object) -> None:
    begin_cycle(CHOSEN, "run")  # type: ignore[arg-type]

    end_cycle(CHOSEN, "run", {"merge": said, "snapshot": "another process holds the lease"})  # type: ignore[arg-type]

    [run] = open_table(find_table(planned[0]["table"])).opened.ledger.runs("maintain")
    assert "snapshot: another process holds the lease" in run.verdict
    assert "merge" in run.verdict.partition(": there was nothing to do")[0]
    assert "b]" not in run.verdict


@pytest.mark.usefixtures("planned")
def test_step_after_what_is_no_result_is_refused_once_and_for_all() -> None:
    result = {"table": "people", "uri": "", "job": "compact", "outcome": "done", "facts": {}, "due_at": ""}
    compacted: Any = {"step": "compact", "outcome": "done", "result": result}
    prepare_step("catch_up_again", CHOSEN, compacted)  # type: ignore[arg-type]

    for change in ({"step": "nothing"}, {"outcome": "nothing"}, {"outcome": None}, {"result": None}, {"more": 1}):
        with pytest.raises(InvalidRequestError, match="not what the task before it returns") as refused:
            prepare_step("catch_up_again", CHOSEN, {**compacted, **change})  # type: ignore[arg-type]
        assert "`compact`" in refused.value.remedy
