"""One application maintains all tables of a registry: one session, side by side, each table by itself."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from memwal_core.spark.session import LateSession
from memwal_core.table import Table
from testkit.simulation.view import lsm_view
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

pytestmark = [pytest.mark.spark, pytest.mark.req("O1", "O9")]

JOB = Path(__file__).resolve().parents[3] / "jobs" / "maintain.py"
ROWS = {1: "a", 2: "p2", 5: "a"}


def maintain(*arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(JOB), *arguments])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(JOB), run_name="__main__")
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """Three tables, of which one is frozen, and the entry of one that does not exist."""
    for name in ("orders", "people", "frozen"):
        write_generations(make_people_table(str(tmp_path / name), rows=people(1, 2), buckets=1), [1, 5], name="a")
    Table.open(str(tmp_path / "frozen")).freeze("looking into it", by="test")
    path = tmp_path / "tables.toml"
    names = ("orders", "gone", "frozen", "people")
    path.write_text("".join(f"[[tables]]\nname = '{name}'\nuri = '{tmp_path / name}'\n" for name in names))
    return path


@pytest.mark.slow
def test_all_due_tables_are_maintained_in_one_session_and_problems_are_told(
    spark: SparkSession, registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMWAL_EXECUTORS__MIN_REGIONS", "1")
    monkeypatch.setenv("MEMWAL_MERGE__EXECUTORS_MIN_BYTES", "0")
    report = tmp_path / "report.json"

    code = maintain("--registry", str(registry), "--parallel", "2", "--report", str(report))

    found: dict[str, Any] = json.loads(report.read_text())
    assert (code, found["exit_code"]) == (6, 6)
    ends = {each["table"]: each["outcome"] or each["end"] for each in found["tables"]}
    assert ends == {"orders": "done", "gone": "failed", "frozen": "frozen", "people": "done"}
    for each in (found["tables"][0], found["tables"][3]):
        assert lsm_view(Table.open(each["uri"]).base) == ROWS
        steps = {step["step"]: step["report"] for step in each["report"]["steps"]}
        assert steps["merge"]["where"]["engine"] == steps["snapshot"]["where"]["engine"] == "spark"
    assert SparkSession.getActiveSession() is spark  # it was the caller's


@pytest.mark.parametrize("named", [("--tables", "orders", "people"), ("--table", "orders", "--table", "people")])
def test_tables_that_are_not_due_start_no_session(
    registry: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: tuple[str, ...]
) -> None:
    """Of ``--table`` given twice, as the command takes it, the first was left out without a word."""
    arguments = ("--registry", str(registry), *named, "--report", "-")
    monkeypatch.setattr(LateSession, "__call__", None)
    assert maintain(*arguments) == 0  # small tables need none, either
    capsys.readouterr()

    assert maintain(*arguments) == 3
    ends = {each["table"]: each["end"] for each in json.loads(capsys.readouterr().out)["tables"]}
    assert ends == {"orders": "not_due", "people": "not_due"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--tables", "ordres"), "ordres"),
        (("--parallel", "0"), "[option='--parallel', problem='Input should be greater than or equal to 1', value=0]"),
        (("--deadline-s", "-1"), "[option='--deadline-s', problem='Input should be greater than 0', value=-1.0]"),
    ],
)
def test_wrong_arguments_are_refused(
    registry: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert maintain("--registry", str(registry), *arguments) == 2
    assert told in capsys.readouterr().err
