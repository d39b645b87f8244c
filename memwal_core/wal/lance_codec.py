"""The ``lance`` codec: an entry is one Lance file, at which a flushed MemTable can point (decision 0002)."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.ids import RegionId
from memwal_core.storage.layout import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal.checksum import CHECKSUM_KEY, EMPTY_SLOT, Buffer, ChecksumError, seal, verify, write_sealed
from memwal_core.wal.entry import WalEntry, described_entry, entry_bytes, refuse_unreadable
from memwal_core.wal.lance_file import PLAIN_VERSION, FileShape, NotPlainError, empty_file, file_shape, is_plain, pack
from memwal_core.wal.lance_unpack import KnownSchema, known_schema, unpack

_READ_BATCH_ROWS = 65_536
_NO_COMPRESSION = {b"lance-encoding:compression": b"none"}
_FOOTER = struct.Struct("<QQQIIHH4s")
_BUFFER = struct.Struct("<QQ")
_MAGIC = b"LANC"
_SPELT_VERSIONS = {(0, 3): (2, 0)}
"""Footer -> table manifest, where they differ."""


def entry_file_version(schema: pa.Schema, table_version: str) -> str:
    """Return the version of the Lance format in which entries of a schema are written.

    A flushed MemTable is a table of its own, so it need not have the base table's version, but all of
    its files must have one version: the version follows from the schema alone.

    Args:
        schema: The MemTable schema.
        table_version: The base table's data storage version.
    """
    return PLAIN_VERSION if is_plain(schema) else table_version


class LanceCodec:
    """An entry is one Lance file with a checksum in its schema metadata. Safe to use from several threads."""

    suffix = LANCE_WAL_SUFFIX
    writes_fences = False

    def __init__(self) -> None:
        """Begin without knowing a schema."""
        self._shape: FileShape | None = None

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str], storage_version: str) -> int:
        """Write the rows, the metadata and the checksum; see ``WalCodec.write``."""
        sealed = {**metadata, CHECKSUM_KEY: EMPTY_SLOT}
        parts = self._packed(rows, sealed) if storage_version == PLAIN_VERSION else None
        if parts is not None:
            return write_sealed(path, parts, len(parts) - 1, (0, len(parts[-1])))
        schema = _uncompressed(rows.schema)
        with LanceFileWriter(str(path), schema, version=storage_version) as writer:
            for key, value in sealed.items():
                writer.add_schema_metadata(key, value)
            for batch in rows.cast(schema).to_batches():
                writer.write_batch(batch)
        seal(path, schema_range)
        return path.stat().st_size

    def _packed(self, rows: pa.Table, metadata: Mapping[str, str]) -> list[Buffer] | None:
        shape = self._shape
        if shape is None or not shape.schema.equals(rows.schema, check_metadata=True):
            if not is_plain(rows.schema):
                return None
            self._shape = shape = file_shape(rows.schema, _schema_message(rows.schema))
        try:
            return pack(rows, shape, metadata) if rows.num_rows else None
        except NotPlainError:
            return None

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read and verify an entry; see ``WalCodec.read``."""
        path = wal_entry_path(region_id, wal_id, self.suffix)
        data = entry_bytes(store, region_id, wal_id, self.suffix)
        try:
            if not verify(data, schema_range):
                refuse_unreadable(region_id, wal_id, path, "it has no checksum")
            try:
                rows, stored = unpack(data, _known_schema)
            except NotPlainError:
                rows, stored = _read_with_lance(store, path, data)
        except (OSError, RuntimeError, ChecksumError) as error:
            refuse_unreadable(region_id, wal_id, path, str(error), error)
        return described_entry(region_id, wal_id, stored, rows, len(data), file_version(data))


def schema_range(data: bytes) -> tuple[int, int]:
    """Return where a Lance file keeps its schema: its first global buffer.

    Raises:
        ChecksumError: The footer cannot be that of a Lance file.
    """
    try:
        *_, buffers, count, _, _, _, magic = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        start, size = _BUFFER.unpack_from(data, buffers)
    except (struct.error, OverflowError) as error:  # A damaged position may be beyond what Python can index.
        raise ChecksumError("the footer is damaged") from error
    if magic != _MAGIC or not count:
        raise ChecksumError("the footer is damaged")
    return start, start + size


def file_version(data: bytes) -> tuple[int, int]:
    """Return the version of a Lance file as table manifests spell it, from its footer."""
    major, minor = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)[5:7]
    return _SPELT_VERSIONS.get((major, minor), (major, minor))


def _schema_message(schema: pa.Schema) -> bytes:
    """Let Lance describe a schema as its files do."""
    with tempfile.NamedTemporaryFile(suffix=LANCE_WAL_SUFFIX) as file:
        with LanceFileWriter(file.name, schema, version=PLAIN_VERSION):
            pass  # No rows: the schema is all that is wanted.
        data = Path(file.name).read_bytes()
    start, end = schema_range(data)
    return data[start:end]


@lru_cache(maxsize=64)
def _known_schema(message: bytes, columns: int) -> KnownSchema | None:
    """Let Lance say what a description of a schema means."""
    with tempfile.NamedTemporaryFile(suffix=LANCE_WAL_SUFFIX) as file:
        file.write(empty_file(message, columns))
        file.flush()
        try:
            return known_schema(LanceFileReader(file.name).metadata().schema)
        except (OSError, RuntimeError, ValueError):
            return None  # Whatever is wrong with it, Lance says so again when it reads the entry.


def _read_with_lance(store: ObjectStore, path: str, data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    with _local_file(store, path, data) as file:
        reader = LanceFileReader(file)
        stored = dict(reader.metadata().schema.metadata or {})
        return reader.read_all(batch_size=_READ_BATCH_ROWS).to_table(), stored


@contextmanager
def _local_file(store: ObjectStore, path: str, data: bytes) -> Iterator[str]:
    """Give a local path with the verified bytes, so that nothing is fetched twice."""
    if store.kind is StoreKind.LOCAL:
        yield store.uri_of(path)
        return
    with tempfile.NamedTemporaryFile(dir=store.staging_directory(path), suffix=LANCE_WAL_SUFFIX) as file:
        file.write(data)
        file.flush()
        yield file.name


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


LANCE_CODEC = LanceCodec()
