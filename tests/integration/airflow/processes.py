"""What processes and files of the tests' Airflow show to others on the machine."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def jobs_of(root: Path) -> dict[int, tuple[str, str]]:
    """Return command line and environment of each Spark process of the servers below a directory, by its number."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            environment = (process / "environ").read_bytes().replace(b"\0", b"\n").decode(errors="replace")
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            is_ours = str(root) in environment + command
            if is_ours and ("spark" in command or "jobs/" in command):
                found[int(process.name)] = command, environment
    return found


def whatever_was_written(root: Path) -> dict[str, str]:
    """Return the bytes of every file below a directory as text: logs, the database, configurations, events."""
    files = [path for path in root.rglob("*") if path.is_file() and path.suffix not in {".pyc", ".lance"}]
    return {str(path.relative_to(root)): path.read_bytes().decode("latin-1") for path in files}
