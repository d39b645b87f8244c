"""Many seeds at once: no process outlives the command that started it."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from rich.console import Console

from memwal_core.clock import SystemClock
from testkit.simulation.many import play_seeds

WORKERS = 2
LONGEST_S = 120


@contextmanager
def _playing() -> Iterator[tuple[subprocess.Popen[str], list[psutil.Process]]]:
    """Play many seeds, and return the process and those that it has started."""
    options = ["--seeds", "1000", "--first", "0", "--jobs", str(WORKERS)]
    command, clock = [sys.executable, "-m", "testkit.simulation", *options], SystemClock()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        until = clock.monotonic() + LONGEST_S
        while len(workers := psutil.Process(parent.pid).children()) < WORKERS + 1:  # And one that tracks resources.
            assert clock.monotonic() < until
            clock.sleep(0.1)
        try:
            yield parent, workers
        finally:
            parent.kill()  # Or one that does not end keeps the test for an hour.


@pytest.mark.slow
def test_processes_that_play_seeds_end_with_the_one_that_was_killed() -> None:
    """Of a killed `make sim`, they went on without end, and filled the memory with tables."""
    with _playing() as (parent, workers):
        parent.kill()
    _, alive = psutil.wait_procs(workers, timeout=LONGEST_S)
    assert alive == []


@pytest.mark.slow
def test_a_run_that_is_ended_early_plays_no_further_seed_and_says_how_to_go_on() -> None:
    """The seeds under way are short; all others were played to their end, with nobody to see it."""
    with _playing() as (parent, workers):
        parent.terminate()
        output, _ = parent.communicate(timeout=LONGEST_S)
    _, alive = psutil.wait_procs(workers, timeout=LONGEST_S)

    assert alive == []
    assert parent.returncode == 1
    assert "ended early; on: make sim FIRST=" in output


@pytest.fixture
def _signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class _EndAskedFor:
    """Five seeds, of which somebody asks for an end when two are handed out."""

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[int]:
        yield from range(2)
        raise KeyboardInterrupt


@pytest.mark.usefixtures("_signals")
def test_an_end_that_is_asked_for_while_seeds_are_handed_out_is_heard() -> None:
    played = play_seeds(_EndAskedFor(), (), 1, Console(quiet=True))

    assert played.is_ended
    assert played.failed == []


@pytest.mark.usefixtures("_signals")
def test_a_log_is_told_how_far_a_run_is() -> None:
    log = io.StringIO()

    play_seeds(range(200), (), 1, Console(file=log))

    assert "100 of 200 played, 0 failed" in log.getvalue()
