"""What a process does to a directory, in the order in which it was done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

ROOT = 0
"""The inode of the recorded directory itself, which is on the disk before the recording begins."""

Slot = tuple[int, str]
"""A name in a directory: the directory's inode, the name."""


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes of a file."""

    inode: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    """A file is cut, or filled with zeros, to a size in bytes."""

    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Names:
    """Names that change in one step: to an inode, or None for a name that is taken away."""

    changes: tuple[tuple[Slot, int | None], ...]

    @property
    def only_removes(self) -> bool:
        """Whether no name is given."""
        return all(inode is None for _, inode in self.changes)


@dataclass(frozen=True, slots=True)
class Sync:
    """A file or directory was synced.

    Attributes:
        inode: Which.
        began: Number of operations that had ended when it began: those it brings to the disk.
    """

    inode: int
    began: int


@dataclass(frozen=True, slots=True)
class Mark:
    """The process said something, for example that rows are acknowledged.

    ``settled`` says that the machine ran on for so long that everything before it is on the disk.
    """

    said: Mapping[str, Any]


Operation = Write | Resize | Names | Sync | Mark


class SyncClass(StrEnum):
    """What a sync is for: in the base table, or below ``_mem_wal/``."""

    TABLE_DATA = "table-data"
    """Rows, deletion vectors, indexes and transactions."""
    TABLE_MANIFEST = "table-manifest"
    TABLE_DIRECTORY = "table-directory"
    """Names."""
    REGION_DATA = "region-data"
    """WAL entries, what flushed MemTables consist of, leases and the ledger."""
    REGION_MANIFEST = "region-manifest"
    """Of regions, and of flushed MemTables."""
    REGION_DIRECTORY = "region-directory"


@dataclass(frozen=True, slots=True)
class Recording:
    """Everything that one process did to one directory, which was empty.

    Attributes:
        root: The directory with the table and its copies, absolute. Tables hold addresses, so that states must be built
            at the same place.
        operations: In the order in which they ended.
        directories: Inodes of directories.
        paths: Every path below the root that each inode ever had.
        unsure: Absolute paths of which nobody knows, because a kill ended a call that named them.
    """

    root: str
    operations: tuple[Operation, ...]
    directories: frozenset[int]
    paths: Mapping[int, frozenset[str]]
    unsure: frozenset[str] = frozenset()

    def marks(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Return what the process said, with its place."""
        for place, operation in enumerate(self.operations):
            if isinstance(operation, Mark):
                yield place, operation.said

    def class_of(self, inode: int) -> SyncClass:
        """Return what a sync of an inode is for."""
        paths = self.paths.get(inode, frozenset())
        area = "region" if any("/_mem_wal/" in f"/{path}/" for path in paths) else "table"
        if inode in self.directories:
            return SyncClass(f"{area}-directory")
        return SyncClass(f"{area}-manifest" if any(map(_is_manifest, paths)) else f"{area}-data")


def _is_manifest(path: str) -> bool:
    return f"/{path}".rpartition("/")[0].endswith(("/_versions", "/manifest"))
