"""The bytes of a WAL entry.

The ``lance`` codec stores an entry as one Lance file, so that a flushed MemTable can point at it
without copying rows (decision 0002). Another codec only has to fill the same protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.ids import RegionId
from memwal_core.storage.layout import wal_entry_path
from memwal_core.storage.protocol import ObjectStore

WRITER_EPOCH_KEY = "writer_epoch"
ATTEMPT_KEY = "memwal:attempt"
"""Schema metadata that tells this attempt's bytes from any other's (hex text)."""

_READ_BATCH_ROWS = 65_536
_NO_COMPRESSION = {b"lance-encoding:compression": b"none"}


@dataclass(frozen=True, slots=True)
class WalEntry:
    """One entry read back.

    Attributes:
        wal_id: Position in the WAL, from 1.
        writer_epoch: Epoch of the writer that wrote it.
        attempt: The attempt's mark; empty on foreign entries.
        rows: Its rows in write order, the MemTable schema.
        size_bytes: Length of the stored object.
    """

    wal_id: int
    writer_epoch: int
    attempt: str
    rows: pa.Table
    size_bytes: int


class WalCodec(Protocol):
    """How rows become the bytes of an entry and back."""

    @property
    def suffix(self) -> str:
        """File name suffix, with the dot."""
        ...

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str], storage_version: str) -> None:
        """Write an entry's file.

        Args:
            path: A local file that does not exist yet.
            rows: In write order, the MemTable schema.
            metadata: Goes into the schema metadata; holds ``WRITER_EPOCH_KEY`` and ``ATTEMPT_KEY``.
            storage_version: The base table's data storage version, for example ``2.2``.
        """
        ...

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read an entry that is known to exist.

        Raises:
            CorruptionError: It is no complete entry. Stop; docs/testing.md says what that means.
        """
        ...


class LanceCodec:
    """An entry is one Lance file."""

    suffix = ".lance"

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str], storage_version: str) -> None:
        """Write the rows and the metadata; see ``WalCodec.write``."""
        schema = _uncompressed(rows.schema)
        with LanceFileWriter(str(path), schema, version=storage_version) as writer:
            for key, value in metadata.items():
                writer.add_schema_metadata(key, value)
            for batch in rows.cast(schema).to_batches():
                writer.write_batch(batch)

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read an entry; see ``WalCodec.read``.

        Raises:
            CorruptionError: It is no complete entry.
        """
        path = wal_entry_path(region_id, wal_id, self.suffix)
        info = store.head(path)
        try:
            reader = LanceFileReader(store.uri_of(path), storage_options=dict(store.storage_options) or None)
            stored = reader.metadata().schema.metadata or {}
            rows = reader.read_all(batch_size=_READ_BATCH_ROWS).to_table()
        except (OSError, ValueError, RuntimeError) as error:
            raise CorruptionError(
                "a WAL entry exists but cannot be read",
                remedy="keep the file and every later one, stop the region's writers and run `memwal status`",
                region_id=str(region_id),
                wal_id=wal_id,
                path=path,
                cause=str(error),
            ) from error
        return WalEntry(
            wal_id=wal_id,
            writer_epoch=_epoch_of(stored, region_id, wal_id),
            attempt=stored.get(ATTEMPT_KEY.encode(), b"").decode(),
            rows=rows.replace_schema_metadata(None),
            size_bytes=info.size_bytes if info is not None else 0,
        )


@lru_cache(maxsize=64)
def _uncompressed(schema: pa.Schema) -> pa.Schema:
    """Ask Lance not to compress text: looking for a dictionary takes longer than writing a small entry.

    The entry lives only until its rows are merged, where the base table's own encoding applies.
    """
    return pa.schema([f.with_metadata({**(f.metadata or {}), **_NO_COMPRESSION}) if _is_text(f) else f for f in schema])


def _is_text(field: pa.Field) -> bool:
    return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or _is_binary(field.type))


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def _epoch_of(metadata: Mapping[bytes, bytes], region_id: RegionId, wal_id: int) -> int:
    text = metadata.get(WRITER_EPOCH_KEY.encode(), b"").decode(errors="replace")
    if not text.isdecimal():
        raise CorruptionError(
            "a WAL entry has no writer epoch",
            remedy="keep the file; find out which program wrote it before anything replays it",
            region_id=str(region_id),
            wal_id=wal_id,
            found=text,
        )
    return int(text)


LANCE_CODEC = LanceCodec()
_CODECS: Mapping[str, WalCodec] = {LANCE_CODEC.suffix: LANCE_CODEC}


def codec_for_suffix(suffix: str) -> WalCodec:
    """Return the codec of a WAL file suffix.

    Raises:
        InvalidRequestError: This version has no codec for it.
    """
    codec = _CODECS.get(suffix)
    if codec is None:
        raise InvalidRequestError(
            "this version cannot write WAL entries of this kind",
            remedy="use the writer that made the region",
            suffix=suffix,
            known=sorted(_CODECS),
        )
    return codec
