"""A WAL entry, independent of its codec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol, TypeAlias

import pyarrow as pa

from memwal_core.errors import CorruptionError, DamagedError, ObjectNotFoundError
from memwal_core.format.lance_field import count_ids, inner_fields
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
"""Metadata: the base table's field id of each column, comma-separated; empty for the tombstone column.

The ids of the fields inside of a column follow its own, depth first, with colons between.
"""
FIELD_ID_KEY = b"lance:field_id"
"""Field metadata: the base table's field id."""
INNER_IDS_KEY = b"memwal:inner_ids"
"""Field metadata of rows in memory: the base table's ids of the fields inside of a column, as in ``FIELD_IDS_KEY``."""
_SHOWN = 40


@dataclass(frozen=True, slots=True, eq=False)
class EntryShape:
    """The columns of a base table version as WAL entries have them.

    Attributes:
        column_ids: Column of the base table -> its field id and those of all fields inside, depth first.
    """

    schema: pa.Schema
    column_ids: Mapping[str, tuple[int, ...]]

    @property
    def noted_schema(self) -> pa.Schema:
        """The schema with the field ids of its columns, as rows of an entry that records them have it."""
        return with_field_ids(self.schema, field_ids_text(self.schema.names, self.column_ids).encode())

    def fits(self, found: pa.Schema) -> bool:
        """Return whether rows have these columns: by name and type, and by field id if their entry records it.

        A column that was dropped and added again has the same name and another id; its old values are gone. So is it
        with fields inside of a column.
        """
        if found.equals(self.schema, check_metadata=True):
            return True
        if not found.equals(self.schema):  # Metadata is not compared.
            return False
        noted = noted_column_ids(found)
        return noted is None or all(_agree(noted.get(name, ()), ids) for name, ids in self.column_ids.items())


def _agree(ids: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return whether two give a column the same ids; one may tell nothing of the fields inside."""
    return ids[:1] == other[:1] and (ids == other or 1 in (len(ids), len(other)))


def noted_column_ids(schema: pa.Schema) -> dict[str, tuple[int, ...]] | None:
    """Return what an entry's rows tell of their columns; None if the entry does not record field ids.

    Returns:
        Column -> its field id and those of all fields inside, depth first; the first alone if it does not record all.
    """
    noted: dict[str, tuple[int, ...]] = {}
    for field in schema:
        number = _own_id(field)
        if number is not None:
            noted[field.name] = (number, *_noted_inside(field))
    return noted or None


def _noted_inside(field: pa.Field) -> tuple[int, ...]:
    """Return the ids of the fields inside of a column; nothing if some are missing."""
    text = (field.metadata or {}).get(INNER_IDS_KEY)
    inside = list(_noted_by_pylance(field.type)) if text is None else list(map(whole_number, text.split(b":")))
    found = [number for number in inside if number is not None]
    return tuple(found) if len(found) == len(inside) == count_ids(field.type) - 1 else ()


def _noted_by_pylance(kind: pa.DataType) -> Iterator[int | None]:
    """Yield the ids in the metadata of the fields inside of a type, where pylance's writer has them."""
    if pa.types.is_map(kind):
        # Arrow has nowhere to note what joins keys and values; Lance numbers it right before the keys.
        key = _own_id(kind.key_field)
        yield key - 1 if key else None
        kind = pa.struct([kind.key_field, kind.item_field])
    for inner in inner_fields(kind):
        yield _own_id(inner)
        yield from _noted_by_pylance(inner.type)


def _own_id(field: pa.Field) -> int | None:
    return whole_number((field.metadata or {}).get(FIELD_ID_KEY, b""))


def same_columns(found: pa.Schema, other: pa.Schema) -> bool:
    """Return whether rows of two entries have the same columns; field ids count where both record them."""
    if found.equals(other, check_metadata=True):
        return True
    if not found.equals(other):  # Metadata is not compared.
        return False
    ids, other_ids = noted_column_ids(found), noted_column_ids(other)
    if ids is None or other_ids is None:
        return True
    return ids.keys() == other_ids.keys() and all(_agree(each, other_ids[name]) for name, each in ids.items())


def field_ids_text(names: Iterable[str], column_ids: Mapping[str, tuple[int, ...]]) -> str:
    """Return the ids of columns as ``FIELD_IDS_KEY`` has them."""
    return ",".join(":".join(map(str, column_ids.get(name, ()))) for name in names)


def with_field_ids(schema: pa.Schema, ids: bytes | None) -> pa.Schema:
    """Return a schema whose fields carry ids, given as in ``FIELD_IDS_KEY``; unchanged if they do not fit it."""
    numbers = ids.split(b",") if ids else []
    if len(numbers) != len(schema):
        return schema
    fields = [_with_ids(field, each) if each else field for field, each in zip(schema, numbers, strict=True)]
    return pa.schema(fields, schema.metadata)


def _with_ids(field: pa.Field, ids: bytes) -> pa.Field:
    number, _, inside = ids.partition(b":")
    noted = {FIELD_ID_KEY: number, **({INNER_IDS_KEY: inside} if inside else {})}
    return field.with_metadata({**(field.metadata or {}), **noted})


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
