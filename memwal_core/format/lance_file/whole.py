"""Whether Lance wrote a file to its end: on a local disk without room it drops the last bytes and reports no error."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from memwal_core.errors import UnavailableError
from memwal_core.format.footer import MAGIC
from memwal_core.storage.protocol import ObjectInfo, ObjectStore, StoreKind

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


def has_footer(path: str) -> bool:
    """Return whether a path is that of a file that ends in Lance's footer."""
    return path.endswith(_SUFFIXES)


def require_written(store: ObjectStore, files: Iterable[ObjectInfo]) -> None:
    """Refuse files that Lance has just written to a local disk, and that lost their ends; others than Lance's pass.

    Args:
        store: Where they are.
        files: Looked for only where a store can lose ends.

    Raises:
        UnavailableError: One did. Nothing may refer to it.
        ObjectNotFoundError: One does not exist.
    """
    if store.kind is not StoreKind.LOCAL:
        return
    for file in files:
        start = max(0, file.size_bytes - len(MAGIC))
        if has_footer(file.path) and store.get_range(file.path, start, len(MAGIC)) != MAGIC:
            raise UnavailableError(
                "a file lost its end when it was written, as on a full disk, and Lance did not say so",
                remedy="free space, then try again",
                store=store.uri,
                path=file.path,
                size_bytes=file.size_bytes,
            )
