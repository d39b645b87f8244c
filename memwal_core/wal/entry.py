"""A WAL entry, independent of its codec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

import pyarrow as pa

from memwal_core.errors import CorruptionError, DamagedError, ObjectNotFoundError
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.text import whole_number

WRITER_EPOCH_KEY = "writer_epoch"
GENERATION_KEY = "generation"
"""Schema metadata: the MemTable that took the rows. Informational; positions decide."""
ATTEMPT_KEY = "memwal:attempt"
"""Schema metadata that tells this attempt's bytes from any other's (hex text)."""
PLACE_KEY = "memwal:place"
"""Schema metadata: the region and position that the entry was written for, so that no other entry passes for it."""
FENCE_KEY = "fence_sentinel"
"""Schema metadata of an entry without rows that only takes a position from an older writer."""


FIELD_IDS_KEY = "memwal:field_ids"
"""Schema metadata: the base table's field id of each column, comma-separated; empty for the tombstone column."""
FIELD_ID_KEY = b"lance:field_id"
"""Field metadata: the base table's field id."""
_SHOWN = 40


@dataclass(frozen=True, slots=True, eq=False)
class EntryShape:
    """The columns of a base table version as WAL entries have them; ``field_ids`` covers the top-level columns."""

    schema: pa.Schema
    field_ids: Mapping[str, int]

    def fits(self, found: pa.Schema) -> bool:
        """Return whether rows have these columns: by name and type, and by field id if their entry records it.

        A column that was dropped and added again has the same name and another id; its old values are gone.
        """
        if found.equals(self.schema, check_metadata=True):
            return True
        if not found.equals(self.schema):  # Metadata is not compared.
            return False
        noted = noted_field_ids(found)
        return noted is None or all(noted.get(name) == number for name, number in self.field_ids.items())


def noted_field_ids(schema: pa.Schema) -> dict[str, int] | None:
    """Return column -> field id of an entry's rows; None if the entry does not record them."""
    noted = {field.name: whole_number((field.metadata or {}).get(FIELD_ID_KEY, b"")) for field in schema}
    return {name: number for name, number in noted.items() if number is not None} or None


def same_columns(found: pa.Schema, other: pa.Schema) -> bool:
    """Return whether rows of two entries have the same columns; field ids count where both record them."""
    if found.equals(other, check_metadata=True):
        return True
    if not found.equals(other):  # Metadata is not compared.
        return False
    ids, other_ids = noted_field_ids(found), noted_field_ids(other)
    return ids is None or other_ids is None or ids == other_ids


def with_field_ids(schema: pa.Schema, ids: bytes | None) -> pa.Schema:
    """Return a schema whose fields carry ids, given as in ``FIELD_IDS_KEY``; unchanged if they do not fit it."""
    numbers = ids.split(b",") if ids else []
    if len(numbers) != len(schema):
        return schema
    fields = [
        field.with_metadata({**(field.metadata or {}), FIELD_ID_KEY: number}) if number else field
        for field, number in zip(schema, numbers, strict=True)
    ]
    return pa.schema(fields, schema.metadata)


@dataclass(frozen=True, slots=True)
class WalEntry:
    """One entry read back.

    Attributes:
        attempt: The attempt's mark; empty on foreign entries.
        rows: In write order; without columns if the entry is a fence.
        is_fence: Whether it only marks a claim and has no rows.
        file_version: Major and minor version of its Lance file; None if it is not a Lance file.
    """

    wal_id: int
    writer_epoch: int
    attempt: str
    rows: pa.Table
    size_bytes: int
    is_fence: bool = False
    file_version: tuple[int, int] | None = None


NewFile: TypeAlias = Callable[[], Path]
"""Returns the path of a local file that does not exist yet."""


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

    def encode(
        self, rows: pa.Table, metadata: Mapping[str, str], storage_version: str, new_file: NewFile
    ) -> Sequence[memoryview] | Path:
        """Return an entry's content, its checksum included: pieces that may share memory with ``rows``, or a new file.

        ``metadata`` has ``WRITER_EPOCH_KEY``, ``ATTEMPT_KEY`` and ``PLACE_KEY``; ``new_file`` is called where the
        bytes cannot be made in memory.
        """
        ...

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read an entry that is known to exist, and verify it.

        Raises:
            CorruptionError: It is incomplete, or a byte of it has changed. Stop; replaying on would lose or
                alter rows.
        """
        ...

    def decode(
        self,
        store: ObjectStore,
        region_id: RegionId,
        wal_id: int,
        data: bytes,
        shape: EntryShape | None = None,
        *,
        apart: bool = False,
    ) -> WalEntry:
        """Verify all bytes of an entry and read them; errors as for ``read``.

        If ``shape`` fits the rows they get its schema, which is cheaper here than for each entry afterwards.
        Otherwise their schema carries the field ids that the entry records. With ``apart``, bytes that only Lance can
        read are read by another process first, which may die of them.
        """
        ...


def entry_bytes(store: ObjectStore, region_id: RegionId, wal_id: int, suffix: str) -> bytes:
    """Read the bytes of an entry that is known to exist; ``CorruptionError`` if it is gone."""
    try:
        return store.get(wal_entry_path(region_id, wal_id, suffix))
    except ObjectNotFoundError as error:
        refuse_unreadable(region_id, wal_id, suffix, "the entry is gone", error)


def refuse_unreadable(
    region_id: RegionId, wal_id: int, suffix: str, cause: str, error: Exception | None = None
) -> NoReturn:
    """Raise ``CorruptionError`` for an entry that cannot be trusted."""
    raise DamagedError(
        "a WAL entry exists but cannot be read",
        remedy="keep the file and every later one, and run `memwal repair` with --dry-run, which says what is lost",
        region_id=str(region_id),
        wal_id=wal_id,
        path=wal_entry_path(region_id, wal_id, suffix),
        cause=cause,
    ) from error


def place_of(region_id: RegionId, wal_id: int) -> str:
    """Return what ``PLACE_KEY`` says of an entry."""
    return f"{region_id}:{wal_id}"


def described_entry(
    region_id: RegionId,
    wal_id: int,
    metadata: Mapping[bytes, bytes],
    rows: pa.Table,
    size_bytes: int,
    file_version: tuple[int, int] | None = None,
) -> WalEntry:
    """Make an entry from its rows and their schema metadata.

    ``CorruptionError``: it has no writer epoch. ``DamagedError``: it was written for another place.
    """
    place = metadata.get(PLACE_KEY.encode(), b"").decode(errors="replace")
    if place and place != place_of(region_id, wal_id):
        suffix = LANCE_WAL_SUFFIX if file_version is not None else ARROW_WAL_SUFFIX
        refuse_unreadable(region_id, wal_id, suffix, f"it is the entry of another place: {place}")
    stated = metadata.get(WRITER_EPOCH_KEY.encode(), b"")
    epoch = whole_number(stated)
    if epoch is None:
        raise CorruptionError(
            "a WAL entry has no writer epoch",
            remedy="keep the file; find out which program wrote it before anything replays it",
            region_id=str(region_id),
            wal_id=wal_id,
            found=stated.decode(errors="replace")[:_SHOWN],
        )
    return WalEntry(
        wal_id=wal_id,
        writer_epoch=epoch,
        attempt=metadata.get(ATTEMPT_KEY.encode(), b"").decode(errors="replace"),
        rows=rows,
        size_bytes=size_bytes,
        is_fence=metadata.get(FENCE_KEY.encode()) == b"true",
        file_version=file_version,
    )
