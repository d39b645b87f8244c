"""What the rest of the package asks of an object store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

from memwal_core.storage.limits import MAX_OBJECT_BYTES

ObjectPart: TypeAlias = "bytes | memoryview"
"""A piece of an object in memory; a memoryview must have items of one byte."""


class StoreKind(StrEnum):
    """Where the bytes are stored, which decides how durable they are (WRT-26)."""

    LOCAL = "local"
    MEMORY = "memory"
    S3 = "s3"
    GCS = "gs"
    AZURE = "az"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object.

    Attributes:
        path: Relative to the store's root, ``/`` between parts.
        modified: Last change, timezone UTC.
        etag: The store's version of the content; None where it has none.
    """

    path: str
    size_bytes: int
    modified: datetime
    etag: str | None


class ObjectStore(Protocol):
    """Objects under one root, usually a table's directory.

    All paths are relative to the root. Methods raise ``UnavailableError`` when the store does not
    answer after the configured retries, and ``InvalidRequestError`` on refused credentials or missing
    buckets; each caller retries only what it can repeat without harm.
    """

    @property
    def uri(self) -> str:
        """The root as pylance opens it, without a final slash."""
        ...

    @property
    def kind(self) -> StoreKind:
        """Where the bytes are stored."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options pylance needs to open tables below the root."""
        ...

    def uri_of(self, path: str) -> str:
        """Return the address of a path as pylance opens it."""
        ...

    def get(self, path: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read a whole object; nothing of it if it is larger than an object of its kind may be.

        Raises:
            ObjectNotFoundError: It does not exist.
            CorruptionError: It is larger than ``max_bytes``, or (on local disks) not a regular file below the root.
        """
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from offset ``start``, fewer where the object ends.

        Raises:
            ObjectNotFoundError: It does not exist.
        """
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object, or return None if it does not exist."""
        ...

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe all objects below a directory, recursively, in no particular order."""
        ...

    def list_directories(self, prefix: str) -> list[str]:
        """Return the names (last parts) of the immediate subdirectories of a directory, sorted."""
        ...

    def require_files(self, directories: Collection[str]) -> None:
        """Refuse directories that other code (pylance) must not open: something in one could block or mislead it.

        Costs nothing on object stores, which hold nothing but objects. A directory that does not exist is none.

        Raises:
            CorruptionError: On a local disk, something below is a pipe, a socket, a device, or a symbolic link out of
                the root; ``facts["path"]`` names it.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing any earlier content; not durable on local disks, and readers may see old or new.

        For hints, and for directories that no reader knows yet, before ``sync_directory``.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if the object does not exist; durable when it returns (fsync on local disks).

        An object that already holds exactly ``data`` counts as success: it is this call's own write whose
        reply was lost. Callers that can race with equal bytes must therefore make the bytes unique per
        attempt (``IdSource.commit_id``).

        Raises:
            ObjectExistsError: Other bytes are there; they stay untouched.
        """
        ...

    def put_parts_if_absent(self, path: str, parts: Sequence[ObjectPart]) -> None:
        """Like ``put_if_absent``, with content in several pieces, in order, which the caller need not join."""
        ...

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Like ``put_if_absent``, with the content of a local file, which may be consumed (moved)."""
        ...

    def put_large(self, path: str, pieces: Iterable[bytes], size_bytes: int) -> None:
        """Write an object of any size, whole or not at all, holding few of its pieces in memory; durable as above.

        An object that is there stays; if it has the same size, and on a local disk the same bytes, that counts as
        success. But remote stores take parts without a condition and replace what appears meanwhile: only for names
        that get one content, whoever writes it.

        Args:
            path: Where.
            pieces: The content, in order, ``size_bytes`` bytes together; an error of theirs ends the write.
            size_bytes: How large it is.

        Raises:
            ObjectExistsError: Another object is there.
        """
        ...

    def link(self, path: str, source: str) -> bool:
        """Give an object a second name, under which it stays when the first is deleted; no byte is copied.

        For directories that no reader knows yet, before ``sync_directory``. A name that is taken is an error.

        Returns:
            Whether the object has the second name; False where the store has no links or refuses this one.

        Raises:
            ObjectNotFoundError: ``source`` does not exist.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone counts as success."""
        ...

    def delete_directory(self, prefix: str) -> int:
        """Remove all objects below a directory (and, on local disks, the directories); return how many objects."""
        ...

    def sync_directory(self, prefix: str) -> None:
        """Make durable what other code (pylance) wrote below a directory.

        Lance syncs nothing on a local disk; remote stores are durable by themselves.
        """
        ...

    def sync_objects(self, paths: Collection[str]) -> None:
        """Make durable some objects that other code wrote, and their names.

        Raises:
            ObjectNotFoundError: One of them does not exist (only on local disks, where there is something to sync).
        """
        ...

    def staging_directory(self, path: str) -> Path:
        """Return a local directory in which to prepare the file meant for ``path``.

        On local disks it lies on the same file system as ``path``, so that ``put_file_if_absent`` can link
        instead of copy.
        """
        ...
