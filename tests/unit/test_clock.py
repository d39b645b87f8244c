"""The clock of the machine."""

from __future__ import annotations

import shutil
import subprocess
import sys

_SLEPT = ("unshare", "--time", "--boottime", "100000")
_SHOW = """
import time
from memwal_core.clock import SystemClock
before = time.clock_gettime(time.CLOCK_BOOTTIME)
assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME), "sleep does not count"
"""


def test_time_in_which_the_machine_slept_is_counted() -> None:
    """A writer that was suspended with its machine took its claim for verified, and acknowledged into collected places.

    In a namespace of its own, where that is allowed, as if the machine had slept for a day.
    """
    may_sleep = shutil.which("unshare") and subprocess.run([*_SLEPT, "true"], check=False, capture_output=True)
    prefix = _SLEPT if may_sleep and not may_sleep.returncode else ()
    shown = subprocess.run([*prefix, sys.executable, "-c", _SHOW], check=False, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
