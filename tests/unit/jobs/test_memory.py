"""Peak memory and its limit, as jobs record them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from memwal_core.jobs.memory import memory_limit_bytes

PROGRAM = """
from memwal_core.jobs.memory import peak_memory_bytes
before = peak_memory_bytes()
held = b"x" * (before + (1 << 26))
del held
print(before, peak_memory_bytes())
"""


def test_peak_grows_with_what_the_process_holds_and_does_not_fall_again() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)

    before, after = map(int, ended.stdout.split())
    assert after >= before + (1 << 26)


HELD_MIB = 600
STARTER = f"""
import subprocess, sys
held = b"x" * {HELD_MIB << 20}
program = "from memwal_core.jobs.memory import peak_memory_bytes; print(peak_memory_bytes())"
subprocess.run([sys.executable, "-c", program], check=True)
"""


def test_peak_is_not_that_of_the_process_that_started_this_one() -> None:
    ended = subprocess.run([sys.executable, "-c", STARTER], check=True, capture_output=True, text=True)

    assert 0 < int(ended.stdout) < HELD_MIB << 20


def test_limit_is_that_of_the_container_where_it_has_one(tmp_path: Path) -> None:
    machine = memory_limit_bytes(())
    bounded, unbounded, beyond = tmp_path / "bounded", tmp_path / "unbounded", tmp_path / "beyond"
    bounded.write_text("1048576\n")
    unbounded.write_text("max\n")
    beyond.write_text("9223372036854771712\n")

    assert memory_limit_bytes((tmp_path / "missing", bounded)) == 1 << 20
    assert memory_limit_bytes((unbounded,)) == machine
    assert memory_limit_bytes((beyond,)) == machine
