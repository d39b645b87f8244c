"""`memwal maintain --registry`: one round as people run it, and the service as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app
from memwal_core.table import Table
from testkit.tables.garbage import write_generations
from testkit.tables.people import make_people_table, people

ROOT = Path(__file__).resolve().parents[3]
MAIN = "from memwal_core.cli import main; main()"


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    """One table to maintain, and an address where nothing is."""
    write_generations(make_people_table(str(tmp_path / "sound"), rows=people(1, 2), buckets=1), [3], name="new")
    file = tmp_path / "tables.toml"
    file.write_text("".join(f'[[tables]]\nname = "{name}"\nuri = "{tmp_path / name}"\n' for name in ("sound", "gone")))
    return file


def run(*arguments: str):
    return CliRunner().invoke(app, ["maintain", *arguments], env={"COLUMNS": "200"})


@pytest.mark.slow  # Each table is worked on in a process of its own.
def test_round_over_a_registry_plans_and_runs_what_is_due(registry: Path) -> None:
    sound = Table.open(str(registry.parent / "sound"))

    planned = run("--registry", str(registry), "--table", "sound", "--dry-run")
    assert (planned.exit_code, sound.base.state().num_rows) == (0, 2)
    done = run("--registry", str(registry), "--json")
    ends = {each["table"]: each["outcome"] or each["end"] for each in json.loads(done.stdout)["tables"]}
    assert (done.exit_code, ends) == (6, {"sound": "done", "gone": "failed"})
    assert sound.base.state().num_rows == 3
    assert run("--registry", str(registry), "--table", "sound").exit_code == 3


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["somewhere", "--registry", "tables.toml"],
        ["somewhere", "--every", "60s"],
        ["somewhere", "--now"],
        ["--registry", "none.toml"],
        ["--registry", "FILE", "--table", "unknown"],
        ["--registry", "FILE", "--keep-garbage"],
        ["--registry", "FILE", "--storage-option", "a=b"],
        ["--registry", "FILE", "--port", "1"],
        ["--registry", "FILE", "--every", "soon"],
        ["--registry", "FILE", "--every", "0.5"],
        ["--registry", "FILE", "--every", "9999999999h"],
    ],
)
def test_what_does_not_fit_together_is_refused(registry: Path, arguments: list[str]) -> None:
    result = run(*(str(registry) if each == "FILE" else each for each in arguments))

    assert getattr(result.exception, "exit_code", result.exit_code) == 2
    assert Table.open(str(registry.parent / "sound")).base.state().num_rows == 2


@pytest.mark.slow
def test_service_maintains_until_sigterm(registry: Path) -> None:
    options = ["maintain", "--registry", str(registry), "--every", "1s", "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        address = process.stderr.readline().rpartition(", ")[2].strip()
        told = {}
        while told.keys() != {"sound", "gone"}:
            line = json.loads(process.stdout.readline())
            told[line["table"]] = line["outcome"] or line["end"]
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert b'memwal_maintain_table_problem{memwal_table="sound"} 0' in answer.read()
        with urllib.request.urlopen(address.replace("/metrics", "/healthz"), timeout=60) as answer:
            assert json.loads(answer.read())["problems"].keys() == {"gone"}
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, told) == (0, {"sound": "done", "gone": "failed"})
    assert "asked to end" in said
    assert Table.open(str(registry.parent / "sound")).base.state().num_rows == 3


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["gone", "full"])
def test_service_whose_output_nobody_takes_goes_on(tmp_path: Path, reader: str) -> None:
    """Before, it stood still as soon as it had to tell of one more table, and a full disk silenced it for ever."""
    registry = tmp_path / "tables.toml"
    entry = '[[tables]]\nname = "{0}"\nuri = "' + str(tmp_path) + '/{0}"\n'
    registry.write_text(entry.format("first"))
    options = ["maintain", "--registry", str(registry), "--every", "1s"]
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN, *options],
            stdout=full if reader == "full" else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ,
        )
    try:
        assert process.stderr is not None
        if process.stdout is not None:
            assert "first: failed" in process.stdout.readline()
            process.stdout.close()
        for name in ("second", "third"):
            registry.write_text(registry.read_text() + entry.format(name))
            assert any("cannot be written" in line and name in line for line in process.stderr)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0
