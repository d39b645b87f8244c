"""What tasks hand to each other can be changed by whoever may clear them: nothing else than work is taken for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memwal_core.airflow.tasks.work import WorkItem, plan_work, release_leases, require_job
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
