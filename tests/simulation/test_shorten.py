"""A failure of many turns is told as one of a few, which anybody can play again."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from memwal_core.writer import table_context
from testkit.simulation import SimulationFailedError, Symptom
from testkit.simulation.actors.writers import WriterActor
from testkit.simulation.many import failure_of, main
from testkit.simulation.scenes import EVERYBODY
from testkit.simulation.schedule import Schedule
from testkit.simulation.shorten import shortened
from tests.simulation.misrouting import Misrouting

FAILING_SEED = 25
"""Fails after 30 turns where a table writer routes otherwise than every other writer."""


@pytest.fixture
def misrouting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_context, "RegionRouter", Misrouting)


@pytest.mark.usefixtures("misrouting")
def test_the_few_turns_that_a_failure_needs_fail_of_the_same_again() -> None:
    found = failure_of(EVERYBODY, FAILING_SEED)
    assert found is not None

    schedule, failure = shortened(found, partial(failure_of, EVERYBODY, FAILING_SEED))

    assert failure.symptom is found.symptom is Symptom.WRONG_ROWS
    assert len(schedule.turns) <= 5 < found.turn
    assert str(failure_of(EVERYBODY, FAILING_SEED, Schedule.parse(str(schedule)))) == str(failure)


def test_what_a_turn_draws_depends_on_no_turn_before_it(tmp_path: Path) -> None:
    def begun(name: str, schedule: Schedule) -> list[str]:
        directory = tmp_path / name
        directory.mkdir()
        trace = EVERYBODY.play(FAILING_SEED, directory, schedule).trace
        return [line for line in trace if "begins turn" in line]

    every, some = begun("every", Schedule.of(12)), begun("some", Schedule((3, 8, 12)))

    assert some == [every[2], every[7], every[11]]


def test_a_turn_that_is_quiet_is_not_disturbed(tmp_path: Path) -> None:
    trace = EVERYBODY.play(FAILING_SEED, tmp_path, Schedule.parse(",".join(f"{turn}q" for turn in range(1, 31)))).trace

    assert [line for line in trace if line.startswith(" ") or "dies" in line or "UnavailableError" in line] == []


@pytest.mark.parametrize("text", ["3", "3,7q,12:2:5", "1q"])
def test_schedule_is_read_as_it_is_written(text: str) -> None:
    assert str(Schedule.parse(text)) == text


@pytest.mark.parametrize("text", ["", "0", "7,3", "3,3", "3:0", "3x", "3q:1", "-1", "3,,4"])
def test_what_is_no_schedule_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="3,7q,12:2:5"):
        Schedule.parse(text)


def command(*options: str) -> Result:
    app = typer.Typer()
    app.command()(main)
    return CliRunner().invoke(app, ["--first", "1", *options])


def test_turns_are_played_in_the_process_that_plays_seeds() -> None:
    result = command("--seeds", "1", "--scene", "everybody", "--only", "3,7q,9:1", "--jobs", "1")

    assert (result.exit_code, "1 passed, 0 failed" in result.output) == (0, True)


@pytest.mark.parametrize("options", [["--seeds", "2", "--scene", "rivals"], ["--seeds", "1"]])
def test_turns_of_several_seeds_or_scenes_are_refused(options: list[str]) -> None:
    result = command("--only", "3", *options)

    assert result.exit_code == 2
    assert "one seed in one scene" in result.output


def test_an_error_that_is_not_ours_is_told_with_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the whole run, and nobody knew of which seed."""

    def broken(*_: object) -> None:
        raise KeyError("version")

    monkeypatch.setattr(WriterActor, "turn", broken)

    with pytest.raises(SimulationFailedError, match="seed 25: unexplained error: KeyError") as failed:
        EVERYBODY.play(FAILING_SEED, tmp_path)

    assert failed.value.symptom is Symptom.ERROR
