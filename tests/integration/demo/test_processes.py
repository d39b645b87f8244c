"""Children of the demonstration: watched, measured, and gone when their parent is interrupted."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TextIO

import pytest

from demo.processes import Command, run_all
from memwal_core.clock import SystemClock

MIB = 1024 * 1024


def _python(name: str, code: str) -> Command:
    return Command(name, (sys.executable, "-c", code), dict(os.environ))


def test_lines_of_all_programs_are_seen_and_logged(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    code = "import sys; print('out', flush=True); print('error', file=sys.stderr); print('no end', end='')"

    finished = run_all(
        [_python("a", code), _python("b", code)],
        tmp_path,
        SystemClock(),
        lambda command, line: seen.append((command.name, line)),
    )

    assert sorted(seen) == [(name, line) for name in "ab" for line in ("error", "no end", "out")]
    assert [each.log.read_text() for each in finished] == ["out\nerror\nno end"] * 2


def test_exit_code_of_each_program_is_told(tmp_path: Path) -> None:
    commands = [_python("good", ""), _python("bad", "raise SystemExit(7)"), _python("killed", "import os; os.abort()")]

    finished = run_all(commands, tmp_path, SystemClock(), lambda *_: None)

    assert [(each.name, each.exit_code) for each in finished] == [("good", 0), ("bad", 7), ("killed", -signal.SIGABRT)]


def test_peak_memory_is_that_of_the_largest_process(tmp_path: Path) -> None:
    grow = f"rows = b'x' * {300 * MIB}"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grow!r}], check=True)"

    small, large = run_all(
        [_python("small", ""), _python("parent-of-large", inner)], tmp_path, SystemClock(), lambda *_: None
    )

    assert large.peak_bytes >= 300 * MIB
    assert small.seconds > 0


def _becomes_free(file: TextIO) -> bool:
    """Try for a minute: a killed process lets go of its lock only when the kernel has buried it."""
    for _ in range(1200):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            threading.Event().wait(0.05)
        else:
            return True
    return False


@pytest.mark.parametrize("deaf", [False, True])
def test_interrupted_parent_leaves_no_process_behind(tmp_path: Path, deaf: bool) -> None:
    # A lock is held as long as its process lives, and no longer.
    lock = tmp_path / "lock"
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" if deaf else ""
    grandchild = f"""{ignore}
import fcntl, time
held = open({str(lock)!r}, "w")
fcntl.flock(held, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)"""
    child = f"""{ignore}
import subprocess, sys
subprocess.run([sys.executable, "-c", {grandchild!r}])"""

    def interrupt(_: Command, line: str) -> None:
        assert line == "locked"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all([_python("sleeper", child)], tmp_path, SystemClock(), interrupt, grace_s=1)

    with lock.open() as free:
        assert _becomes_free(free)
