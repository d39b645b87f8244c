"""What a WAL entry is, whatever its bytes look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import pyarrow as pa

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.ids import RegionId
from memwal_core.storage.layout import wal_entry_path
from memwal_core.storage.protocol import ObjectStore

WRITER_EPOCH_KEY = "writer_epoch"
GENERATION_KEY = "generation"
"""Schema metadata: the MemTable that took the rows. For people; positions decide."""
ATTEMPT_KEY = "memwal:attempt"
"""Schema metadata that tells this attempt's bytes from any other's (hex text)."""
FENCE_KEY = "fence_sentinel"
"""Schema metadata of an entry without rows that only takes a position from an older writer."""


@dataclass(frozen=True, slots=True)
class WalEntry:
    """One entry read back.

    Attributes:
        wal_id: Position in the WAL, from 1.
        writer_epoch: Epoch of the writer that wrote it.
        attempt: The attempt's mark; empty on foreign entries.
        rows: Its rows in write order, the MemTable schema; without columns if it is a fence.
        size_bytes: Length of the stored object.
        is_fence: Whether it only marks a claim and has no rows.
        file_version: Major and minor version of its Lance file; None if it is none.
    """

    wal_id: int
    writer_epoch: int
    attempt: str
    rows: pa.Table
    size_bytes: int
    is_fence: bool = False
    file_version: tuple[int, int] | None = None


class WalCodec(Protocol):
    """How rows become the bytes of an entry and back."""

    @property
    def suffix(self) -> str:
        """File name suffix, with the dot."""
        ...

    @property
    def writes_fences(self) -> bool:
        """Whether a claim takes the next position with an entry of its own."""
        ...

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str], storage_version: str) -> int:
        """Write an entry's file, its checksum included.

        Args:
            path: A local file that does not exist yet.
            rows: In write order, the MemTable schema.
            metadata: Goes into the schema metadata; holds ``WRITER_EPOCH_KEY`` and ``ATTEMPT_KEY``.
            storage_version: Version of the Lance format, where the codec has use for it.

        Returns:
            The length of the file in bytes.
        """
        ...

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read an entry that is known to exist, and verify it.

        Raises:
            CorruptionError: It is no complete entry, or a byte of it has changed. Stop; replaying
                on would lose or alter rows.
        """
        ...


def entry_bytes(store: ObjectStore, region_id: RegionId, wal_id: int, suffix: str) -> bytes:
    """Read the bytes of an entry that is known to exist; ``CorruptionError`` if it is gone."""
    path = wal_entry_path(region_id, wal_id, suffix)
    try:
        return store.get(path)
    except ObjectNotFoundError as error:
        refuse_unreadable(region_id, wal_id, path, "the entry is gone", error)


def refuse_unreadable(
    region_id: RegionId, wal_id: int, path: str, cause: str, error: Exception | None = None
) -> NoReturn:
    """Refuse an entry that cannot be trusted.

    Raises:
        CorruptionError: Always.
    """
    raise CorruptionError(
        "a WAL entry exists but cannot be read",
        remedy="keep the file and every later one, stop the region's writers and run `memwal doctor`",
        region_id=str(region_id),
        wal_id=wal_id,
        path=path,
        cause=cause,
    ) from error


def described_entry(
    region_id: RegionId,
    wal_id: int,
    metadata: Mapping[bytes, bytes],
    rows: pa.Table,
    size_bytes: int,
    file_version: tuple[int, int] | None = None,
) -> WalEntry:
    """Make an entry from its rows and schema metadata.

    Raises:
        CorruptionError: It has no writer epoch.
    """
    epoch = metadata.get(WRITER_EPOCH_KEY.encode(), b"").decode(errors="replace")
    if not (epoch.isascii() and epoch.isdecimal()):
        raise CorruptionError(
            "a WAL entry has no writer epoch",
            remedy="keep the file; find out which program wrote it before anything replays it",
            region_id=str(region_id),
            wal_id=wal_id,
            found=epoch,
        )
    return WalEntry(
        wal_id=wal_id,
        writer_epoch=int(epoch),
        attempt=metadata.get(ATTEMPT_KEY.encode(), b"").decode(errors="replace"),
        rows=rows.replace_schema_metadata(None),
        size_bytes=size_bytes,
        is_fence=metadata.get(FENCE_KEY.encode()) == b"true",
        file_version=file_version,
    )
