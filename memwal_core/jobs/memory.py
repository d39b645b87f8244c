"""How much memory this process has held, and how much it may hold."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

PEAK_MEMORY_FACT = "peak_memory_bytes"
"""Fact of a run: the most memory that its process ever held."""

MEMORY_LIMIT_FACT = "memory_limit_bytes"
"""Fact of a run: what its process may hold."""

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The bound of a container in version 2, and in version 1, of control groups."""

_STATUS = Path("/proc/self/status")


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held since its program began; child processes do not count."""
    # On Linux, ru_maxrss includes what the parent process held before it started the program; VmHWM does not.
    if _STATUS.is_file():
        [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    # Kilobytes everywhere but on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_limit_bytes(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Return what the container may hold, or what the machine has if nothing bounds it."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        try:
            found = path.read_text().strip()
        except OSError:
            continue
        if found.isdecimal():
            return min(int(found), machine)  # Without a bound, version 1 has a number beyond any memory.
    return machine
