"""Files of a local store: reading, syncing, publishing without replacing."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from memwal_core.clock import Clock, at_millis
from memwal_core.errors import CorruptionError
from memwal_core.storage.address import TEMPORARY_PREFIX
from memwal_core.storage.protocol import ObjectInfo, ObjectPart

_LINK_ATTEMPTS = 10
_MTIME_STEP_NS = 1000
_LOCK_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MAX_VECTORS = 1024
"""Parts that the operating system accepts in one call."""
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Another file system, one without links (FAT, some network and object mounts), a forbidden or one too many."""
_JOINED_BYTES = 256 * 1024
"""Up to this size, one copy costs less than passing the parts one by one."""
_LARGE_ENTRIES = 256
_SETTLED_S = 2.0
"""Age from which the time of a directory tells its contents apart, however coarse the file system's clock is."""
_READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOOK_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@contextmanager
def opened(root: str, path: str) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file below a root for reading, and describe it; never waits for another process.

    Raises:
        FileNotFoundError: Nothing is there.
        IsADirectoryError: A directory is there.
        CorruptionError: Something else than a file is there, or a symbolic link leads out of the root.
    """
    descriptor, status = _open(root, path, _READ_FLAGS)
    try:
        yield descriptor, status
    finally:
        os.close(descriptor)


def read_opened(descriptor: int, start: int, length: int) -> bytes:
    """Return a part of an open file, less where it ends before."""
    parts = []
    while length > 0 and (part := os.pread(descriptor, length, start)):
        parts.append(part)
        start, length = start + len(part), length - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def regular_status(root: str, path: str) -> os.stat_result | None:
    """Describe a regular file below a root; None if nothing, or a directory, is there. Errors as for ``opened``."""
    try:
        descriptor, status = _open(root, path, _LOOK_FLAGS)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    os.close(descriptor)
    return status


def require_directory_inside(root: str, path: str) -> None:
    """Refuse a directory, or its nearest parent that exists, if a symbolic link leads from the root to elsewhere.

    Raises:
        CorruptionError: It does.
    """
    while path:
        try:
            if "/" not in path and stat.S_ISDIR(os.lstat(f"{root}/{path}").st_mode):
                return
            descriptor = os.open(f"{root}/{path}", _LOOK_FLAGS)
        except FileNotFoundError:
            path = path.rpartition("/")[0]
            continue
        except OSError as error:
            _refuse_circle(root, path, error)
            raise
        try:
            _require_inside(descriptor, root, path)
        finally:
            os.close(descriptor)
        return


def require_file(root: str, path: str) -> None:
    """Refuse anything but a regular file that is there under its own name. Errors as for ``opened``."""
    status = os.lstat(f"{root}/{path}")
    if stat.S_ISLNK(status.st_mode):
        with opened(root, path):
            return
    _require_regular(status, root, path)


class ForeignEntries:
    """Finds what is neither a file nor a directory below a root, for code that opens files there by their names.

    Symbolic links pass if they lead to a file or directory below the root. A large directory is not read again
    while its time says that it has not changed.
    """

    def __init__(self, root: str, clock: Clock) -> None:
        self._root = root
        self._clock = clock
        self._known: dict[str, tuple[tuple[int, int], list[str]]] = {}

    def find(self, directories: Collection[str]) -> str | None:
        """Return the path of one that is anywhere below some directories, if there are any."""
        pending = list(directories)
        while pending:
            found = self._directories(pending.pop())
            if isinstance(found, str):
                return found
            pending += found
        return None

    def _directories(self, inner: str) -> list[str] | str:
        place = f"{self._root}/{inner}"
        try:
            status = os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            return []
        state = (status.st_ino, status.st_mtime_ns)
        known = self._known.get(inner)
        if known is not None and known[0] == state:
            return known[1]
        entries = visible_entries(place)
        others = [entry for entry in entries if not entry.is_file(follow_symlinks=False)]
        directories = []
        for entry in others:
            path = f"{inner}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                directories.append(path)
            elif not entry.is_symlink() or not _leads_to_content(self._root, path):
                return path
        is_large = len(entries) >= _LARGE_ENTRIES and len(others) == len(directories)
        if is_large and self._clock.now().timestamp() - status.st_mtime > _SETTLED_S:
            self._known[inner] = (state, directories)
        return directories


def read_file(path: str) -> bytes:
    """Return the content of a file that this package has made."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def write_new_file(path: str, parts: Sequence[ObjectPart], *, sync: bool) -> None:
    """Write a file that must not exist yet (``FileExistsError``), and sync it through the same descriptor if wanted.

    Nothing stays of one that cannot be written whole: on a full disk it would take the room that somebody makes.
    """
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
    except BaseException:
        remove_file(path)
        raise
    finally:
        os.close(descriptor)


def sync_path(path: str) -> None:
    """Bring a file's content, or a directory's names, to the disk."""
    descriptor = os.open(path, _READ_FLAGS)
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


def make_directories(path: str) -> None:
    """Make a directory and those above it where they are missing.

    Raises:
        PermissionError: Among others where the file system has no place for directories, as below ``/proc``.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except FileNotFoundError as error:
        raise PermissionError(errno.EACCES, "No directory can be made", path) from error


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
        modified=at_millis(status.st_mtime_ns / 1e6),
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


def _leads_to_content(root: str, path: str) -> bool:
    try:
        if regular_status(root, path) is None:
            require_directory_inside(root, path)
            return os.path.isdir(f"{root}/{path}")
    except (OSError, CorruptionError):
        return False
    return True


def _open(root: str, path: str, flags: int) -> tuple[int, os.stat_result]:
    target = f"{root}/{path}"
    try:
        _require_regular(os.stat(target), root, path)  # Opening a device may already do something.
        descriptor = os.open(target, flags)
    except OSError as error:
        _refuse_circle(root, path, error)
        raise
    try:
        status = os.fstat(descriptor)
        _require_regular(status, root, path)
        _require_inside(descriptor, root, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, status


def _refuse_circle(root: str, path: str, error: OSError) -> None:
    if error.errno == errno.ELOOP:
        raise foreign_refusal(root, path, "a symbolic link that leads nowhere") from error


def _require_regular(status: os.stat_result, root: str, path: str) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    found = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "of an unknown kind")
    raise foreign_refusal(root, path, found)


def _require_inside(descriptor: int, root: str, path: str) -> None:
    place = _place_of(descriptor, f"{root}/{path}")
    if place.startswith(f"{root}/"):
        return
    real = os.path.realpath(root).rstrip("/")
    if not place.startswith(f"{real}/"):
        raise foreign_refusal(root, path, "reached through a symbolic link that leads out of the directory")


def _place_of(descriptor: int, path: str) -> str:
    """Return where an open file is, without symbolic links."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)


def foreign_refusal(root: str, path: str, found: str) -> CorruptionError:
    """Return the error of something that is not a file of a directory, and says what it is."""
    return CorruptionError(
        "what lies at this path is not a file of this directory, and is left alone",
        remedy="find out who put it there, and remove it; then run `memwal doctor`",
        path=path,
        store=root,
        found=found,
    )
