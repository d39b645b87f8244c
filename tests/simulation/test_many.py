"""Many seeds at once: no process outlives the command that started it."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from memwal_core.clock import SystemClock

WORKERS = 2
LONGEST_S = 120


@pytest.mark.slow
def test_processes_that_play_seeds_end_with_the_one_that_was_killed() -> None:
    """Of a killed `make sim`, they went on without end, and filled the memory with tables."""
    options = ["--seeds", "1000", "--first", "0", "--jobs", str(WORKERS)]
    clock = SystemClock()
    with subprocess.Popen([sys.executable, "-m", "testkit.simulation", *options], stdout=subprocess.DEVNULL) as parent:
        until = clock.monotonic() + LONGEST_S
        while len(workers := psutil.Process(parent.pid).children()) < WORKERS + 1:  # And one that tracks resources.
            assert clock.monotonic() < until
            clock.sleep(0.1)
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=LONGEST_S)
    assert alive == []
