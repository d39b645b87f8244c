"""How a table's cycle begins: with the steps that need no task."""

from __future__ import annotations

from pathlib import Path

import pytest

from memwal_core.airflow.tasks.cycle import CycleTable, await_tasks, begin_cycle, choose_cycle_tables
from memwal_core.registry import REGISTRY_VARIABLE
from testkit.clock import ManualClock
from testkit.tables.people import make_people_table, people
from tests.integration.airflow.tasks.steps import run_step


def test_cycle_begins_with_the_steps_that_need_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cost a process of Airflow's, seconds of processor time, to say that nobody had asked for it."""
    table = make_people_table(str(tmp_path / "people.lance"), rows=people(*range(50)))
    path = tmp_path / "tables.toml"
    monkeypatch.setenv(REGISTRY_VARIABLE, str(path))

    def chosen(entry: str = "") -> CycleTable:
        path.write_text(f"[[tables]]\nname = 'people'\nuri = '{table.uri}'\n{entry}\n")
        return choose_cycle_tables([], by_schedule=False)[0]

    assert begin_cycle(chosen(), "run 1") == ["audit", "check"]
    run_step("verify", chosen(), "run 1")
    assert begin_cycle(chosen(), "run 2") == ["audit", "verify", "check"]
    assert begin_cycle(chosen("checks = 'mandatory'"), "run 3") == ["verify"]


@pytest.mark.parametrize(
    ("there", "looks", "waited_s"),
    [([2], 1, 0), ([0, 0, 1, 2], 4, 1.5), ([0] * 8 + [1] * 8 + [2], 17, 8), ([1] * 99, 11, 5)],
    ids=["all-there", "soon", "one-after-the-other", "no-more-come"],
)
def test_cycle_waits_for_the_tasks_that_it_skips(there: list[int], looks: int, waited_s: float) -> None:
    """What Airflow's scheduler had not laid out yet was not skipped, and took a worker to find that out by itself."""
    clock, left = ManualClock(), iter(there)
    began = clock.monotonic()

    await_tasks(lambda: next(left), 2, clock)

    assert (clock.monotonic() - began, len(list(left))) == (waited_s, len(there) - looks)
