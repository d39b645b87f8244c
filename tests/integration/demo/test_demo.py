"""The demonstration as people start it, on the flights of three days."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import lance
import pytest

from demo.directory import MARKER

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]

DAYS = 3
FLIGHTS = 2_699  # dated on the first three days of the year
GIB = 1024


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "demo", *arguments],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


def test_demonstration_ends_with_exactly_the_expected_rows(tmp_path: Path) -> None:
    directory = tmp_path / "demo"

    ran = _demo("run", "--directory", str(directory), "--days", str(DAYS))

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"identical: {FLIGHTS:,} rows, every key once, every value as expected" in ran.stdout
    assert "8 generations wait for a merge" in ran.stdout
    assert "nothing to do: every flushed MemTable is merged" in ran.stdout
    assert lance.dataset(str(directory / "flights.lance")).count_rows() == FLIGHTS
    peaks = [float(size) for size in re.findall(r"([\d.]+) MiB$", ran.stdout.partition("peak memory")[2], re.M)]
    assert len(peaks) == 6
    assert max(peaks) < 2 * GIB
    assert {log.name for log in (directory / "logs").iterdir()} == {
        "writer-0.log", "writer-1.log", "airflow-migrate.log", "merge-dag.log", "merge-dag-again.log",
    }  # fmt: skip


def test_foreign_directory_ends_with_bad_input(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    ran = _demo("run", "--directory", str(tmp_path), "--days", "1")

    assert ran.returncode == 2
    assert "will not be emptied" in ran.stderr
    assert not (tmp_path / MARKER).exists()
