"""Files of a local store: reading, syncing, publishing without replacing."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from memwal_core.storage.address import TEMPORARY_PREFIX
from memwal_core.storage.protocol import ObjectInfo, Part

_LINK_ATTEMPTS = 10
_MTIME_STEP_NS = 1000
_LOCK_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_VECTORS = 1024
"""Parts that the operating system accepts in one call."""
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Another file system, one without links (FAT, some network and object mounts), a forbidden or one too many."""
_JOINED_BYTES = 256 * 1024
"""Up to this size, one copy costs less than passing the parts one by one."""


def read_file(path: str) -> bytes:
    """Return the content of a file."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def write_new_file(path: str, parts: Sequence[Part], *, sync: bool) -> None:
    """Write a file that must not exist yet (``FileExistsError``), and sync it through the same descriptor if wanted."""
    pending = [memoryview(part) for part in parts if len(part)]
    if len(pending) > 1 and sum(map(len, pending)) <= _JOINED_BYTES:
        pending = [memoryview(b"".join(pending))]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        while pending:
            written = os.writev(descriptor, pending[:_MAX_VECTORS])
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_path(path: str) -> None:
    """Bring a file's content, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: str) -> None:
    """Bring all files and names below a directory to the disk, deepest first."""
    for parent, _, files in os.walk(directory, topdown=False):
        for name in files:
            sync_path(os.path.join(parent, name))
        sync_path(parent)


def remove_file(path: str) -> None:
    """Remove a file; one that is already gone counts as success."""
    with suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def link_new(staged: str, target: str) -> bool:
    """Link a staged file to its name; never replaces a file (``FileExistsError``).

    Returns:
        Whether directories were missing and were made: their own names are not synced.
    """
    made = False
    for attempt in range(_LINK_ATTEMPTS):
        try:
            os.link(staged, target)
        except FileNotFoundError:
            # The directory is missing, or a rival removed it when it was empty.
            if attempt == _LINK_ATTEMPTS - 1 or not os.path.exists(staged):
                raise
            os.makedirs(os.path.dirname(target), exist_ok=True)
            made = True
        else:
            break
    return made


def link_if_possible(existing: str, target: str) -> bool:
    """Link a file to a second name; False if this file system has no links, or no more for this file."""
    try:
        link_new(existing, target)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


def replace_file(staged: str, target: str) -> None:
    """Replace a file; the caller must hold the directory's lock.

    The new file's time is made later than the old one's, so that no two contents in a row have the same
    etag, however coarse the file system's clock is.
    """
    with suppress(FileNotFoundError):
        oldest_allowed = os.stat(target).st_mtime_ns + _MTIME_STEP_NS
        status = os.stat(staged)
        if status.st_mtime_ns < oldest_allowed:
            os.utime(staged, ns=(status.st_atime_ns, oldest_allowed))
    os.replace(staged, target)


@contextmanager
def locked_directory(path: str) -> Iterator[None]:
    """Hold the exclusive lock of a directory, made if missing, against all threads and processes of this machine."""
    try:
        descriptor = os.open(path, _LOCK_FLAGS)
    except FileNotFoundError:
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, _LOCK_FLAGS)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def visible_entries(directory: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory without unfinished files; none if the directory is missing."""
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if not entry.name.startswith(TEMPORARY_PREFIX)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def file_info(path: str, status: os.stat_result) -> ObjectInfo | None:
    """Describe a file under its relative path; None for anything that is not a regular file."""
    if not stat.S_ISREG(status.st_mode):
        return None
    return ObjectInfo(
        path=path,
        size_bytes=status.st_size,
        modified=datetime.fromtimestamp(status.st_mtime_ns / 1e9, tz=UTC),
        etag=f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
    )


def remove_stale_files(directory: str, reference: str, older_than_s: float) -> None:
    """Remove files much older than a file made just now, by the file system's own clock."""
    now_ns = os.stat(reference).st_mtime_ns
    with os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_file() and now_ns - entry.stat().st_mtime_ns > older_than_s * 1e9:
                    os.unlink(entry.path)
