"""Whether Lance wrote a file to its end: on a local disk without room it drops the last bytes and reports no error."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path

from memwal_core.errors import UnavailableError
from memwal_core.format.footer import MAGIC
from memwal_core.storage.protocol import ObjectStore, StoreKind

_SUFFIXES = (".lance", ".idx")


def require_end(path: Path) -> None:
    """Refuse a file that Lance has just written, and that lost its end.

    Raises:
        OSError: It did.
    """
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(MAGIC)))
        if file.read() != MAGIC:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def read_written(path: Path) -> bytes:
    """Return the content of a file that Lance has just written; errors as for ``require_end``."""
    require_end(path)
    return path.read_bytes()


def require_written(store: ObjectStore, paths: Collection[str]) -> None:
    """Refuse files that Lance has just written to a local disk, and that lost their ends; others than Lance's pass.

    Raises:
        UnavailableError: One did. Nothing may refer to it.
        ObjectNotFoundError: One does not exist.
    """
    if store.kind is not StoreKind.LOCAL:
        return
    for path in sorted(paths):
        if not path.endswith(_SUFFIXES):
            continue
        info = store.head(path)
        size = 0 if info is None else info.size_bytes
        if store.get_range(path, max(0, size - len(MAGIC)), len(MAGIC)) != MAGIC:
            raise UnavailableError(
                "a file lost its end when it was written, as on a full disk, and Lance did not say so",
                remedy="free space, then try again",
                store=store.uri,
                path=path,
                size_bytes=size,
            )
