"""What lies on the disk below a directory, so that a change is noticed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

Footprint = dict[str, tuple[int, int, int]]
"""Path -> inode, size and time of the last change of each file; directories count as files of no size."""


def footprint(directory: Path) -> Footprint:
    """Look at everything below a directory."""
    return dict(_walk(str(directory)))


def footprint_of(path: Path) -> Footprint:
    """Look at one file."""
    found = path.lstat()
    return {str(path): (found.st_ino, found.st_size, found.st_mtime_ns)}


def _walk(directory: str) -> Iterator[tuple[str, tuple[int, int, int]]]:
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield f"{entry.path}/", (0, 0, 0)
                yield from _walk(entry.path)
            else:
                found = entry.stat(follow_symlinks=False)
                yield entry.path, (found.st_ino, found.st_size, found.st_mtime_ns)


def differences(before: Footprint, after: Footprint) -> list[str]:
    """Say what was made, removed and changed."""
    made = [f"made {path}" for path in after.keys() - before.keys()]
    removed = [f"removed {path}" for path in before.keys() - after.keys()]
    return sorted(
        [*made, *removed, *(f"changed {path}" for path in before.keys() & after.keys() if before[path] != after[path])]
    )
