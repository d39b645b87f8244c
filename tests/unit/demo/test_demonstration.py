"""The parts of the demonstration that decide without doing."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.airflow import Checkout
from demo.demonstration import DemoPlan, stream_fraction, writer_commands
from demo.directory import DemoDirectory


def test_each_writer_gets_its_part_of_the_same_stream() -> None:
    plan = DemoPlan(DemoDirectory(Path("/demo")), Checkout(Path("/clone")), days=7, writers=3)

    commands = writer_commands(plan, {"A": "b"})

    assert [command.name for command in commands] == ["writer-0", "writer-1", "writer-2"]
    assert [command.arguments[4:] for command in commands] == [
        ("--part", str(part), "--parts", "3", "--days", "7") for part in range(3)
    ]
    assert {command.arguments[3] for command in commands} == {"/demo/flights.lance"}


@pytest.mark.parametrize(("day", "fraction"), [("2012-12-31", 0.0), ("2013-01-02", 0.5), ("2013-01-09", 1.0)])
def test_fraction_of_the_stream_follows_the_day(day: str, fraction: float) -> None:
    assert stream_fraction(day, days=3) == fraction
