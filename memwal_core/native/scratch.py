"""A directory for temporary files, which native libraries need where they take a path."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memwal_core.errors import UnavailableError
from memwal_core.native.system_errors import is_of_system


@contextmanager
def scratch_directory(purpose: str, within: Path | None = None) -> Iterator[Path]:
    """Make a new directory in that of the system (or another one), and remove it with all that is in it.

    Raises:
        UnavailableError: The system refuses to make it, or refuses the block what it needs there.
    """
    try:
        with tempfile.TemporaryDirectory(
            prefix=f"memwal-{purpose}-", dir=within, ignore_cleanup_errors=True
        ) as directory:
            yield Path(directory)
    except (OSError, RuntimeError, ValueError) as error:
        if not is_of_system(error):
            raise
        raise UnavailableError(
            "the directory for temporary files cannot be used",
            remedy="make room in it (TMPDIR names it), or let more files be open (ulimit -n), then try again",
            directory=str(within or tempfile.gettempdir()),
            reason=str(error),
        ) from error
