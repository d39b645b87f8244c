"""Where Data Docs go: Great Expectations writes files, which are then copied to an object store."""

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
    """Yield the directory to write the site into; None if ``place`` is empty.

    If ``place`` is an address in an object store, the files are uploaded on success, with the table's
    ``storage_options``.
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
