"""Everybody at once, from seeds that CI and anyone else can replay."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from memwal_core.writer.stats import FLUSH_FAILURES, FLUSHES, WAL_LATE_ENTRIES
from testkit import simulation
from testkit.simulation import SimulationResult
from testkit.simulation.scenes import EVERYBODY

DEFAULT_SEEDS = range(21)  # In seed 16 alone a flushed MemTable is collected.
QUICK_SEEDS = (7, 9, 16, 20)
"""Those of the default seeds that are not slow: a fifth of the work, and yet everything in ``MUST_HAPPEN`` happens."""

LONG_SEEDS = 200
MUST_HAPPEN = (
    "put",
    "delete",
    "buffered write",
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
    "merge without a lease done",
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


SLOW_SEEDS = [pytest.param(seed, marks=pytest.mark.slow) for seed in DEFAULT_SEEDS if seed not in QUICK_SEEDS]


def _run(seed: int, directory: Path) -> SimulationResult:
    if seed not in _results:
        scratch = directory / str(seed)
        scratch.mkdir()
        _results[seed] = EVERYBODY.play(seed, scratch)
    return _results[seed]


@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "GC-29", "RD-06")
@pytest.mark.parametrize("seed", [*QUICK_SEEDS, *SLOW_SEEDS])
def test_no_acknowledged_row_is_lost_resurrected_or_doubled(seed: int, tmp_path: Path) -> None:
    assert len(_run(seed, tmp_path).trace) >= 60


@pytest.mark.slow
def test_the_default_seeds_reach_everything_that_the_simulation_is_for(tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in DEFAULT_SEEDS:
        seen.update(_run(seed, tmp_path).seen)

    assert [name for name in MUST_HAPPEN if not seen[name]] == []


@pytest.mark.long
@pytest.mark.req("MRG-14", "MRG-15", "MRG-20", "WRT-01", "GC-29", "RD-06")
def test_hundreds_of_fresh_seeds_lose_resurrect_and_double_no_row() -> None:
    command = [sys.executable, "-m", simulation.__name__, "--scene", EVERYBODY.name, "--seeds", str(LONG_SEEDS)]

    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
