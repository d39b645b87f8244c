"""Everybody at once, from seeds that CI and anyone else can replay."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from memwal_core.writer.stats import FLUSH_FAILURES, FLUSHES, WAL_LATE_ENTRIES
from testkit import simulation
from testkit.simulation import Chances, SimulationResult, simulate

ROUGH = Chances(interleave=0.1, fail=0.03, crash=0.02, lance=0.06)
DEFAULT_SEEDS = range(20)
QUICK_SEEDS = (2, 3, 4, 7, 8, 9, 10, 11, 15, 16)
"""Those of the default seeds that are not slow: half of the work, and yet everything in ``MUST_HAPPEN`` happens."""

LONG_SEEDS = range(20, 220)
MUST_HAPPEN = (
    "put",
    "delete",
    "column added",
    "writer of a region that is ACTIVE",
    "writer of a region that is SEALED",
    "writer fenced",
    "zombie fenced",
    "rotation by rows",
    "rotation by bytes",
    FLUSHES,
    "WAL entry linked",
    "WAL entry named",
    FLUSH_FAILURES,
    WAL_LATE_ENTRIES,
    "merge done (in_process)",
    "snapshot done",
    "catch-up done",
    "compact done",
    "flush done",
    "region flushed by a job",
    "repair nothing_to_do",
    "version removed",
    "collected flushed_memtable",
    "collected wal_entry",
    "collected manifest_version",
    "collected directory",
    "read by scan",
    "read by lookup",
    "table put",
    "table write to several regions",
    "region claimed by a table writer",
    "takeover refused",
    "table writer fenced",
    *(f"failed at flush.{place}" for place in ("commit", "commit.done", "keys", "keys.done", "rows", "rows.done")),
)
_results: dict[int, SimulationResult] = {}


def _seeds() -> list:
    chosen = [int(seed) for seed in os.environ.get("MEMWAL_SIM_SEEDS", "").split(",") if seed]
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in DEFAULT_SEEDS if seed not in QUICK_SEEDS]
    return chosen or [*QUICK_SEEDS, *slow]


def _run(seed: int, directory: Path) -> SimulationResult:
    if seed not in _results:
        scratch = directory / str(seed)
        scratch.mkdir()
        _results[seed] = simulate(seed, scratch, chances=ROUGH if seed % 3 == 0 else Chances())
    return _results[seed]


@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "GC-29", "RD-06")
@pytest.mark.parametrize("seed", _seeds())
def test_no_acknowledged_row_is_lost_resurrected_or_doubled(seed: int, tmp_path: Path) -> None:
    assert len(_run(seed, tmp_path).trace) >= 60


@pytest.mark.slow
def test_the_default_seeds_reach_everything_that_the_simulation_is_for(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in DEFAULT_SEEDS:
        seen.update(_run(seed, tmp_path).seen)

    assert [name for name in MUST_HAPPEN if not seen[name]] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "GC-29", "RD-06")
def test_hundreds_of_further_seeds_lose_resurrect_and_double_no_row() -> None:
    command = [
        sys.executable,
        "-m",
        simulation.__name__,
        "--first",
        str(LONG_SEEDS[0]),
        "--seeds",
        str(len(LONG_SEEDS)),
    ]

    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
