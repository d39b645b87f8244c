"""Jobs of tests that start a Spark session: meeting them at a moment, and killing them with all that they started."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

DEADLINE_S = 600
_LAST_LETTERS = 3000
_LOOK_S = 0.01
_LONGEST_DEATH_S = 60


def last_of(log: Path) -> str:
    """Return the end of a job's log."""
    return log.read_text()[-_LAST_LETTERS:]


def wait_for(moment: Callable[[], bool], job: subprocess.Popen[bytes], log: Path) -> None:
    """Return at some moment of a running job; the job's log tells why it did not come."""
    deadline = time.monotonic() + DEADLINE_S
    while not moment():
        assert job.poll() is None, f"the job ended before its moment: {last_of(log)}"
        assert time.monotonic() < deadline, last_of(log)
        time.sleep(_LOOK_S)


def require_success(job: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for the end of a job, which must be a good one."""
    assert job.wait(DEADLINE_S) == 0, last_of(log)


def kill_whole(job: subprocess.Popen[bytes]) -> None:
    """Kill a job, its JVM, and the processes of its tasks and commits, if it is still running."""
    if job.poll() is not None:
        return
    whole = [psutil.Process(job.pid)]
    whole += whole[0].children(recursive=True)
    for each in whole:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    job.wait()
    psutil.wait_procs(whole, timeout=_LONGEST_DEATH_S)
