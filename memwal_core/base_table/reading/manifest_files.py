"""Where table manifests are stored, and reading them through the object store."""

from __future__ import annotations

import threading
from datetime import datetime

from memwal_core.errors import ObjectNotFoundError
from memwal_core.format.paths import TABLE_MANIFEST_SUFFIX, TABLE_VERSIONS_DIRECTORY, table_manifest_path
from memwal_core.format.table_manifest import ManifestFacts, read_manifest
from memwal_core.storage import ObjectInfo, ObjectStore
from memwal_core.storage.limits import MAX_TABLE_MANIFEST_BYTES, require_size

_REMEMBERED = 8


def old_manifest_path(version: int) -> str:
    """Return where a version's manifest is on tables made before Lance 0.17."""
    return f"{TABLE_VERSIONS_DIRECTORY}/{version}{TABLE_MANIFEST_SUFFIX}"


class ManifestFiles:
    """The manifests of one table, of either naming; of a flushed MemTable if its ``directory`` is given.

    Facts of the last few manifests are cached by what the store says of the file, so that a large
    manifest is downloaded once, and a table that was dropped and recreated is noticed.
    """

    def __init__(self, store: ObjectStore, directory: str = "") -> None:
        self._store = store
        self._prefix = f"{directory}/" if directory else ""
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, datetime, str | None], ManifestFacts] = {}

    def locate(self, version: int) -> ObjectInfo:
        """Return the manifest file of a version; ``ObjectNotFoundError`` also after it was cleaned up."""
        for path in (table_manifest_path(version), old_manifest_path(version)):
            info = self._store.head(f"{self._prefix}{path}")
            if info is not None:
                return info
        raise ObjectNotFoundError(
            "this version of the table does not exist",
            remedy="use the newest version; old ones are removed in time",
            table=self._store.uri,
            version=version,
        )

    def read(self, version: int) -> ManifestFacts:
        """Return what the manifest of a version says; ``CorruptionError`` if the file is not a table manifest."""
        info = self.locate(version)
        key = (info.path, info.size_bytes, info.modified, info.etag)
        facts = self._known.get(key)
        if facts is None:
            require_size(info.path, self._store.uri, info.size_bytes, MAX_TABLE_MANIFEST_BYTES)
            facts = read_manifest(
                info.size_bytes, lambda start, length: self._store.get_range(info.path, start, length)
            )
            with self._lock:
                while len(self._known) >= _REMEMBERED:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = facts
        return facts
