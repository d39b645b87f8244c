"""Where Data Docs go: Great Expectations writes files, so other places get a copy of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from memwal_core.settings import StorageSettings
from memwal_core.storage import open_store
from memwal_core.storage.concurrent import map_concurrently

_CONCURRENCY = 8


@contextmanager
def docs_directory(place: str, storage_options: Mapping[str, str], settings: StorageSettings) -> Iterator[Path | None]:
    """Give a directory to write the site into, and bring it to its place at the end.

    Args:
        place: A directory, or an address in an object store; nothing is to be written if empty.
        storage_options: For the object store: those of the table.
        settings: Of the object store.

    Yields:
        The directory; None if nothing is to be written.

    Raises:
        InvalidRequestError: The address or the options cannot be used.
        UnavailableError: Storage failed.
    """
    if "://" not in place:
        yield Path(place) if place else None
        return
    store = open_store(place, storage_options=storage_options, settings=settings)
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        yield root
        files = [path for path in root.rglob("*") if path.is_file()]
        map_concurrently(
            lambda path: store.put(path.relative_to(root).as_posix(), path.read_bytes()), files, _CONCURRENCY
        )
