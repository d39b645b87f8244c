"""Making the files of a version durable before the version exists."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.errors import ConflictError, MemwalError, ObjectNotFoundError
from memwal_core.format.lance_file.whole import has_footer, require_written
from memwal_core.format.table_manifest import NamedFiles, read_named_files
from memwal_core.storage import ObjectStore, StoreKind


class DurableFiles:
    """What this process has made durable of one table; safe for threads.

    Lance syncs nothing on a local disk. A version of ours is published only when every file that it names is on
    the disk: those that Lance wrote for it, and those of earlier versions, which another program may have
    committed a moment ago. Each file is synced once per process; a sync of a file that is on the disk already
    costs microseconds. Files have unique names and never change. Object stores need nothing, and are asked
    nothing.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._manifests = ManifestFiles(store)
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()

    def sync(self, version: int, manifest: bytes) -> None:
        """Make everything durable that a version about to be published needs, the version before it included.

        Raises:
            ConflictError: A file that is new in this version is gone, for example because another process cleaned
                up; prepare the commit again.
            CorruptionError: The bytes are not a table manifest.
            UnavailableError: The disk refused, or a file of the new version lost its end; nothing may be published.
        """
        if self._store.kind is not StoreKind.LOCAL:
            return
        named = read_named_files(manifest)
        before, before_path = self._before(version)
        with self._lock:
            known = self._known
        try:
            if before_path:  # Without it, nothing tells what is new.
                self._require_written(named, before)
            self._store.sync_objects(named.files - before.files - known)
        except ObjectNotFoundError as error:
            raise ConflictError(
                "a file of the new version is gone before the version exists",
                remedy="repeat the change; remove files without a version only when they are old",
                table=self._store.uri,
                version=version,
                **{"path": error.facts.get("path")},
            ) from error
        # What is missing of an old version is damage that this commit does not make worse.
        for path in (*sorted((named.files & before.files) - known), *before_path):
            self._sync_if_present([path])
        for directory in sorted(named.directories - known):
            self._sync_directory(directory)
        with self._lock:
            self._known = named.files | named.directories

    def sync_version(self, version: int) -> None:
        """Make a version durable that exists, whoever made it: its manifest and all that it names.

        Raises:
            ObjectNotFoundError: The version, or a file that it names, does not exist.
            CorruptionError: Its manifest cannot be read.
            UnavailableError: The disk refused.
        """
        if self._store.kind is not StoreKind.LOCAL:
            return
        path = self._manifests.locate(version).path
        named = read_named_files(self._store.get(path))
        with self._lock:
            known = self._known
        self._store.sync_objects(named.files - known)
        for directory in sorted(named.directories - known):
            self._sync_directory(directory)
        self._store.sync_objects([path])
        with self._lock:
            self._known = named.files | named.directories

    def _require_written(self, named: NamedFiles, before: NamedFiles) -> None:
        """Refuse what is new and was not written to its end."""
        # A file that is gone is missed when all are synced.
        files = (self._store.head(path) for path in sorted(filter(has_footer, named.files - before.files)))
        require_written(self._store, (file for file in files if file is not None))
        for directory in sorted(named.directories - before.directories):
            require_written(self._store, self._store.list_objects(directory))

    def _before(self, version: int) -> tuple[NamedFiles, tuple[str, ...]]:
        """Return what the version before names, and its manifest; nothing if it is gone or cannot be read."""
        try:
            path = self._manifests.locate(version - 1).path
            return read_named_files(self._store.get(path)), (path,)
        except MemwalError:
            return NamedFiles(), ()

    def _sync_if_present(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                self._store.sync_objects([path])
            except ObjectNotFoundError:
                continue

    def _sync_directory(self, directory: str) -> None:
        try:
            self._store.sync_directory(directory)
        except ObjectNotFoundError:
            return  # Lance keeps some indexes in the manifest alone.
