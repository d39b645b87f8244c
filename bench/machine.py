"""Facts about the machine that a measurement is meaningless without."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_PACKAGES = ("memwal-core", "pylance", "pyarrow")
_GIB = 1024**3

LOAD = "load before"
"""Name of the fact that is another in every run."""


def machine_facts(scratch: Path) -> dict[str, str]:
    """Return what matters: processor, memory, disk, load, versions.

    Args:
        scratch: Directory in which the measurements are made; decides the file system.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = {
        "processor": _processor(),
        "usable cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / _GIB:.1f} GiB",
        "file system": _file_system(scratch.resolve()),
        "system": platform.platform(),
        LOAD: f"{os.getloadavg()[0]:.2f}",
        "python": platform.python_version(),
    }
    return facts | {package: version(package) for package in _PACKAGES}


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    """Return the type of the file system with the longest mount point above the path."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    above = [(len(point), kind) for point, kind in mounts if path.is_relative_to(point)]
    return max(above, default=(0, "unknown"))[1]  # A changed root may have no mount point.
