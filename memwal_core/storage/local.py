"""A store in a local directory.

It calls the operating system directly instead of obstore: obstore neither syncs nor knows
conditional replacement on local disks, lists unfinished files, and costs more per call than the
system calls themselves, which matters for every WAL append.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from types import MappingProxyType

from memwal_core.clock import Clock
from memwal_core.errors import CorruptionError, ObjectExistsError, UnavailableError
from memwal_core.rng import Rng
from memwal_core.storage import local_files
from memwal_core.storage.address import TEMPORARY_PREFIX, Address, check_path, check_prefix, check_range, check_subtree
from memwal_core.storage.limits import MAX_OBJECT_BYTES, require_size
from memwal_core.storage.protocol import ObjectInfo, ObjectPart, StoreKind
from memwal_core.storage.translate import store_errors_translated

STAGING_NAME = f"{TEMPORARY_PREFIX}staging"
_STALE_AFTER_S = 24 * 3600.0


class LocalStore:
    """Objects as files below one directory, which need not exist yet.

    A new object is written to a hidden staging directory below the root, synced (if ``fsync``), then linked
    to its name: a crash at any point leaves the whole object or none, and a link never replaces. A later
    store removes what crashes left in the staging directory, after a day. A store that has written never makes its
    root again: what is written while a volume is not mounted, or a table is moved away, would be lost.
    """

    def __init__(self, address: Address, *, fsync: bool, rng: Rng, clock: Clock) -> None:
        self._root = address.prefix
        self._fsync = fsync
        self._rng = rng
        self._staging = os.path.join(self._root, STAGING_NAME)
        self._has_written = False
        self._synced: set[str] = set()
        self._foreign = local_files.ForeignEntries(self._root, clock)

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r}, fsync={self._fsync})"

    @property
    def uri(self) -> str:
        """The root as an absolute path."""
        return self._root

    @property
    def kind(self) -> StoreKind:
        """Always local."""
        return StoreKind.LOCAL

    @property
    def storage_options(self) -> Mapping[str, str]:
        """Always empty: local paths need no options."""
        return MappingProxyType({})

    def uri_of(self, path: str) -> str:
        """Return the absolute path of an object or directory."""
        return self._locate(path)

    def get(self, path: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read a whole object."""
        check_path(path)
        with self._translated("get", path), local_files.opened(self._root, path) as (descriptor, status):
            require_size(path, self._root, status.st_size, max_bytes)
            return local_files.read_opened(descriptor, 0, status.st_size)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part; less than ``length`` where the object ends before."""
        check_path(path)
        check_range(path, start, length)
        with self._translated("get_range", path), local_files.opened(self._root, path) as (descriptor, status):
            return local_files.read_opened(descriptor, start, min(length, status.st_size - start))

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object, or return None if it does not exist."""
        check_path(path)
        with self._translated("head", path):
            status = local_files.regular_status(self._root, path)
            return None if status is None else local_files.file_info(path, status)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe all objects below a directory; links to directories, and out of the root, are not followed."""
        pending = self._listable(check_prefix(prefix))
        while pending:
            directory = pending.pop()
            for entry in self._entries(directory):
                path = f"{directory}/{entry.name}" if directory else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                    continue
                info = self._describe(entry, path)
                if info is not None:
                    yield info

    def list_directories(self, prefix: str) -> list[str]:
        """Return the names of the immediate subdirectories of a directory, sorted."""
        found = [entry for directory in self._listable(check_prefix(prefix)) for entry in self._entries(directory)]
        return sorted(entry.name for entry in found if entry.is_dir())

    def require_files(self, directories: Collection[str]) -> None:
        """Refuse directories in which something is neither a file nor a directory."""
        with self._translated("list", ", ".join(directories)):
            for directory in directories:
                local_files.require_directory_inside(self._root, check_subtree(directory))
            path = self._foreign.find(directories)
        if path is not None:
            raise local_files.foreign_refusal(self._root, path, "neither a file nor a directory of the table")

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing any earlier content; not synced, since a hint may be lost."""
        with self._translated("put", path):
            target = self._target(path)
            staged = self._stage([data], sync=False)
            try:
                with local_files.locked_directory(os.path.dirname(target)):
                    local_files.replace_file(staged, target)
            finally:
                local_files.remove_file(staged)

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if the object does not exist."""
        self.put_parts_if_absent(path, [data])

    def put_parts_if_absent(self, path: str, parts: Sequence[ObjectPart]) -> None:
        """Write only if the object does not exist: synced as it is written, then linked."""
        with self._translated("put_if_absent", path):
            target = self._target(path)
            staged = self._stage(parts, sync=self._fsync)
            try:
                self._publish(staged, target, path)
            finally:
                local_files.remove_file(staged)

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Publish a prepared file: by a link if it lies in ``staging_directory``, else by a copy."""
        staged = os.fspath(source)
        with self._translated("put_file_if_absent", path):
            target = self._target(path)
            if not staged.startswith(f"{self._staging}/"):
                self.put_if_absent(path, local_files.read_file(staged))
            else:
                if self._fsync:
                    local_files.sync_path(staged)
                self._publish(staged, target, path)
            local_files.remove_file(staged)

    def put_large(self, path: str, pieces: Iterable[bytes], size_bytes: int) -> None:  # noqa: ARG002 - remote stores ask
        """Write only if the object does not exist: to a file, piece by piece, which is then published."""
        staged = self.staging_directory(path) / f"{self._rng.getrandbits(64):016x}"
        try:
            with self._translated("put_large", path), staged.open("xb") as written:
                written.writelines(pieces)
            self.put_file_if_absent(path, staged)
        finally:
            local_files.remove_file(os.fspath(staged))

    def link(self, path: str, source: str) -> bool:
        """Link a file to a second name; False where the file system cannot."""
        with self._translated("link", source):
            target, existing = self._target(path), self._target(source)
            local_files.require_file(self._root, source)
            return local_files.link_if_possible(existing, target)

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone counts as success."""
        with self._translated("delete", path):
            local_files.remove_file(self._target(path))

    def delete_directory(self, prefix: str) -> int:
        """Remove a directory with all that is in it, and return how many objects it held."""
        directory = self._inside("delete_directory", check_subtree(prefix))
        count = sum(1 for _ in self.list_objects(directory))
        with self._translated("delete_directory", directory), suppress(FileNotFoundError):
            shutil.rmtree(self._locate(directory))
        return count

    def sync_directory(self, prefix: str) -> None:
        """Sync all files and directories below a directory, then the directory's own name."""
        directory = self._inside("sync_directory", check_subtree(prefix))
        target = self._locate(directory)
        if self._fsync:
            with self._translated("sync_directory", directory):
                local_files.sync_tree(target)
                self._sync_names(os.path.dirname(target))

    def sync_objects(self, paths: Collection[str]) -> None:
        """Sync files, then the names in their directories."""
        if not self._fsync:
            return
        directories = set()
        for path in sorted(paths):
            with self._translated("sync_objects", path):
                target = self._target(path)
                local_files.sync_path(target)
            directories.add(os.path.dirname(target))
        for directory in sorted(directories):
            with self._translated("sync_objects", directory):
                self._sync_names(directory)

    def staging_directory(self, path: str) -> Path:
        """Return the hidden directory below the root; file names in it must be unique per attempt."""
        check_path(path)
        with self._translated("staging_directory", path):
            if not os.path.isdir(self._staging):
                self._make_staging()
        return Path(self._staging)

    def _locate(self, path: str) -> str:
        return f"{self._root}/{check_path(path)}"

    def _target(self, path: str) -> str:
        """Return where to change something, whose directory is the table's own."""
        target = self._locate(path)
        local_files.require_directory_inside(self._root, path.rpartition("/")[0])
        return target

    def _inside(self, operation: str, directory: str) -> str:
        with self._translated(operation, directory):
            local_files.require_directory_inside(self._root, directory)
        return directory

    def _translated(self, operation: str, path: str) -> AbstractContextManager[None]:
        return store_errors_translated(operation, path, self._root)

    def _listable(self, directory: str) -> list[str]:
        try:
            return [self._inside("list", directory)]
        except CorruptionError:
            return []  # Nothing of it is this store's; to read one of its files by name is an error.

    def _entries(self, directory: str) -> list[os.DirEntry[str]]:
        with self._translated("list", directory):
            return local_files.visible_entries(f"{self._root}/{directory}")

    def _describe(self, entry: os.DirEntry[str], path: str) -> ObjectInfo | None:
        with self._translated("list", path):
            try:
                if entry.is_symlink():
                    return self.head(path)
                return local_files.file_info(path, entry.stat())
            except (FileNotFoundError, CorruptionError):
                return None  # Deleted since the directory was read, or not a file of this directory.

    def _stage(self, parts: Sequence[ObjectPart], *, sync: bool) -> str:
        """Write the parts to a new file in the staging directory and return its path."""
        if not self._has_written:
            local_files.require_directory_inside(self._root, STAGING_NAME)
        while True:
            staged = f"{self._staging}/{self._rng.getrandbits(64):016x}"
            try:
                local_files.write_new_file(staged, parts, sync=sync)
            except FileExistsError:
                continue  # Another store drew the same name from an equally seeded source.
            except FileNotFoundError:
                self._make_staging()
                continue
            if not self._has_written:
                self._has_written = True
                local_files.remove_stale_files(self._staging, staged, _STALE_AFTER_S)
            return staged

    def _make_staging(self) -> None:
        """Make the staging directory, and the root if nothing was written to it yet."""
        if self._has_written and not os.path.isdir(self._staging) and not local_files.visible_entries(self._root):
            raise UnavailableError(
                "the directory that this process wrote to is gone, or empty",
                remedy="mount the volume or move the directory back, then try again; if it is gone for good, end this "
                "process",
                store=self._root,
            )
        local_files.make_directories(self._staging)

    def _publish(self, staged: str, target: str, path: str) -> None:
        try:
            if local_files.link_new(staged, target):
                # One of them may have been synced, and removed since.
                self._synced -= {os.fspath(above) for above in Path(target).parents}
        except FileExistsError as error:
            if not self._holds(path, staged):
                raise ObjectExistsError(
                    "other bytes are already there",
                    remedy="read them before deciding anything",
                    path=path,
                    store=self._root,
                ) from error
            if self._fsync:
                local_files.sync_path(target)  # The earlier write may have been cut off before its sync.
        self._sync_names(os.path.dirname(target))

    def _holds(self, path: str, staged: str) -> bool:
        with local_files.opened(self._root, path) as (descriptor, status):
            if status.st_size != os.stat(staged).st_size:
                return False
            return local_files.read_opened(descriptor, 0, status.st_size) == local_files.read_file(staged)

    def _sync_names(self, directory: str) -> None:
        """Bring the names in a directory to the disk, and at its first use those of its parents.

        The process that made the parents may have been killed, or may not have synced them yet.
        """
        if not self._fsync:
            return
        local_files.sync_path(directory)
        first_use = []
        while directory not in self._synced and len(directory) >= len(self._root):
            first_use.append(directory)
            directory = os.path.dirname(directory)
            with suppress(PermissionError):  # Directories above the root may not be readable.
                local_files.sync_path(directory)
        self._synced.update(first_use)
