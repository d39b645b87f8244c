"""How much memory this process has held, and how much it may."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of a container: version 2, and version 1 of control groups."""


_STATUS = Path("/proc/self/status")


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held since its program began; child processes do not count."""
    # Linux hands ru_maxrss down from whoever started the program, however much that held; VmHWM is the program's own.
    if _STATUS.is_file():
        [line] = [line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    # Kilobytes everywhere but on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def memory_limit_bytes(limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """Return what the container may hold, or what the machine has if nothing bounds it.

    Args:
        limits: Files to look for the bound of the container in.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        try:
            found = path.read_text().strip()
        except OSError:
            continue
        if found.isdecimal():
            return min(int(found), machine)  # Without a bound, version 1 says a number beyond any memory.
    return machine
