"""The directory of a demonstration: made, recognised and emptied, and never somebody else's."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memwal_core.errors import InvalidRequestError

MARKER = ".memwal-demo"
"""The file that makes a directory one that a demonstration may empty."""

_MARKER_TEXT = "Made by `python -m demo`, which empties this directory when it starts.\n"


@dataclass(frozen=True, slots=True)
class DemoDirectory:
    """Where everything of one demonstration is.

    Attributes:
        root: Absolute path.
    """

    root: Path

    @property
    def table(self) -> Path:
        """The table."""
        return self.root / "flights.lance"

    @property
    def airflow_home(self) -> Path:
        """Airflow's configuration, database and logs."""
        return self.root / "airflow"

    @property
    def spark(self) -> Path:
        """Spark's configuration and scratch files."""
        return self.root / "spark"

    @property
    def logs(self) -> Path:
        """The complete output of every process, one file each."""
        return self.root / "logs"


def claim_directory(path: Path, *, keep: bool = False) -> DemoDirectory:
    """Make the directory, or empty the one of an earlier demonstration.

    Args:
        path: Its place; may be missing, empty, or an earlier demonstration.
        keep: Refuse to empty an earlier demonstration.

    Returns:
        The empty directory.

    Raises:
        InvalidRequestError: Something is there that must not be emptied; it is untouched. Choose another path.
    """
    root = path.absolute()
    present = _entries(root)
    if present and MARKER not in present:
        raise InvalidRequestError(
            "this directory is not one of an earlier demonstration and will not be emptied",
            remedy="choose another with --directory",
            directory=str(root),
            holds=sorted(present)[:5],
        )
    if present and keep:
        raise InvalidRequestError(
            "there is a demonstration here already",
            remedy="leave out --keep to replace it, or choose another with --directory",
            directory=str(root),
        )
    root.mkdir(parents=True, exist_ok=True)
    # The marker goes in first and out last: an emptying that was interrupted can be repeated.
    (root / MARKER).write_text(_MARKER_TEXT)
    for entry in root.iterdir():
        if entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    claimed = DemoDirectory(root)
    for made in (claimed.airflow_home, claimed.spark, claimed.logs):
        made.mkdir()
    return claimed


@contextmanager
def alone_at(path: Path) -> Iterator[None]:
    """Keep others from starting or stopping something here at the same time.

    Args:
        path: Of the directory, which may be missing; the lock is on the one around it and ends with this process.

    Raises:
        InvalidRequestError: Somebody else is at it.
    """
    around = path.absolute().parent
    around.mkdir(parents=True, exist_ok=True)
    locked = os.open(around, os.O_RDONLY)
    try:
        fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(locked)
        raise InvalidRequestError(
            "something is being started or stopped here right now", remedy="wait for its end", directory=str(path)
        ) from error
    try:
        yield
    finally:
        os.close(locked)


def _entries(root: Path) -> set[str]:
    if not root.exists():
        return set()
    if not root.is_dir():
        raise InvalidRequestError(
            "this is a file, not a directory", remedy="choose another with --directory", directory=str(root)
        )
    return {entry.name for entry in root.iterdir()}
