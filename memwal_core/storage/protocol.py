"""What the rest of the package asks of an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias

Part: TypeAlias = "bytes | memoryview"
"""A piece of an object, in memory; a view of single bytes."""


class StoreKind(StrEnum):
    """Where bytes end up, which decides how durable they are (WRT-26)."""

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
        size_bytes: Length of the content.
        modified: Last change, timezone UTC.
        etag: The store's version of the content; None where it has none.
    """

    path: str
    size_bytes: int
    modified: datetime
    etag: str | None


class ObjectStore(Protocol):
    """Objects under one root, usually a table's directory.

    All paths are relative to the root. Methods raise ``UnavailableError`` when the store does
    not answer after the configured retries, and ``InvalidRequestError`` on refused credentials
    or missing buckets; each caller retries only what it can repeat without harm.
    """

    @property
    def uri(self) -> str:
        """The root as pylance opens it, without a final slash."""
        ...

    @property
    def kind(self) -> StoreKind:
        """Where the bytes end up."""
        ...

    @property
    def storage_options(self) -> Mapping[str, str]:
        """What pylance must be given to open tables below the root."""
        ...

    def uri_of(self, path: str) -> str:
        """Return the address of a path as pylance opens it."""
        ...

    def get(self, path: str) -> bytes:
        """Read a whole object.

        Raises:
            ObjectNotFoundError: Nothing is there.
        """
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read ``length`` bytes from offset ``start``.

        Raises:
            ObjectNotFoundError: Nothing is there.
        """
        ...

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object, or return None if nothing is there."""
        ...

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe all objects below a directory, recursively, in no particular order."""
        ...

    def list_directories(self, prefix: str) -> list[str]:
        """Return the names (last parts) of the directories directly below a directory, sorted."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing what is there, not durable on local disks: readers may see old or new.

        For hints, and in a directory that nobody knows yet, before ``sync_directory``.
        """
        ...

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if nothing is there; durable when it returns (fsync on local disks).

        An object that already holds exactly ``data`` counts as success: it is this call's own
        write whose reply was lost. Callers that can race with equal bytes must therefore make
        the bytes unique per attempt (``IdSource.commit_id``).

        Raises:
            ObjectExistsError: Other bytes are there; they stay untouched.
        """
        ...

    def put_parts_if_absent(self, path: str, parts: Sequence[Part]) -> None:
        """Like ``put_if_absent`` with content in several pieces, in order, that need not be joined before.

        Raises:
            ObjectExistsError: Other bytes are there; they stay untouched.
        """
        ...

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Like ``put_if_absent`` with the content of a local file, which may be consumed (moved).

        Raises:
            ObjectExistsError: Other bytes are there; they stay untouched.
        """
        ...

    def put_if_match(self, path: str, data: bytes, etag: str) -> None:
        """Replace an object only if its etag is still ``etag``.

        Raises:
            ConflictError: The object changed or is gone.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone is success."""
        ...

    def delete_directory(self, prefix: str) -> int:
        """Remove all objects below a directory (and, on local disks, the directories).

        Returns:
            How many objects were removed.
        """
        ...

    def sync_directory(self, prefix: str) -> None:
        """Make everything below a directory durable that others (pylance) wrote there.

        Lance syncs nothing on a local disk; remote stores are durable by themselves.
        """
        ...

    def staging_directory(self, path: str) -> Path:
        """Return a local directory in which to prepare the file meant for ``path``.

        On local disks it lies on the same file system as ``path``, so that
        ``put_file_if_absent`` can link instead of copy.
        """
        ...
