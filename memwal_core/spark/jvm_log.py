"""The messages of a JVM that we start: in a file instead of the terminal, which stays after failures only."""

from __future__ import annotations

import atexit
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

_kept: set[Path] = set()
_paths: list[Path] = []


def open_log() -> IO[bytes]:
    """Return a new file, which only its owner reads, for a JVM of this process; it goes when the process ends."""
    descriptor, name = tempfile.mkstemp(prefix="memwal-spark-", suffix=".log")
    path = Path(name)
    _paths.append(path)
    owner = os.getpid()

    def remove() -> None:
        if path not in _kept and os.getpid() == owner:
            with suppress(OSError):
                path.unlink()

    atexit.register(remove)
    return os.fdopen(descriptor, "wb")


def keep_log() -> str:
    """Keep the file after the end of the process; return its path, empty if this process started no JVM."""
    if not _paths:
        return ""
    _kept.add(_paths[-1])
    return str(_paths[-1])
