"""The ``lance`` codec: an entry is one Lance file, at which a flushed MemTable can point (decision 0002)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from memwal_core.errors import CorruptionError, ObjectNotFoundError, UnavailableError
from memwal_core.format.checksum import CHECKSUM_KEY, EMPTY_SLOT, Buffer, sealed, verify_checksum
from memwal_core.format.footer import read_file_footer
from memwal_core.format.lance_file.encodings import NotPlainError, is_plain
from memwal_core.format.lance_file.pack import FOOTER_VERSION, PLAIN_VERSION, FileShape, pack
from memwal_core.format.lance_file.schema import described_schema, plain_shape, schema_range
from memwal_core.format.lance_file.unpack import KnownSchema, unpack
from memwal_core.format.lance_file.whole import read_written
from memwal_core.format.malformed import apparent_damage
from memwal_core.format.paths import LANCE_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.native.casting import compact_rows
from memwal_core.native.decoding import decode_file_in_child
from memwal_core.native.panics import panics_raised
from memwal_core.native.scratch import scratch_directory
from memwal_core.native.system_errors import MAKE_ROOM, is_of_system
from memwal_core.native.type_cache import type_cache
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal.entry import (
    FENCE_KEY,
    FIELD_IDS_KEY,
    EntryShape,
    NewFile,
    WalEntry,
    described_entry,
    entry_bytes,
    field_ids_text,
    refuse_unreadable,
    with_field_ids,
)

_READ_BATCH_ROWS = 65_536
_NO_COMPRESSION = {b"lance-encoding:compression": b"none"}
_EXTENSION_KEY = b"ARROW:extension:name"
_STORED_JSON = b"lance.json"
_IN_MEMORY = "memory://json"
_PLAIN_VERSION = (2, 0)
_PADDING_KEY = "memwal:padding"
_FENCE_BYTES, _MOST_FENCE_BYTES = 30_011, 32_011
"""A fence is padded, so that entries with rows need not be read to find out that they are none."""
_SPELT_VERSIONS = {FOOTER_VERSION: _PLAIN_VERSION}
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


@dataclass(frozen=True, slots=True, eq=False)
class _Chosen:
    known: KnownSchema
    ids: bytes | None
    shape: EntryShape | None
    schema: pa.Schema


class LanceCodec:
    """An entry is one Lance file with a checksum in its schema metadata. Safe to use from several threads.

    Args:
        column_ids: Column of the base table -> its field id and those of all fields inside, depth first; noted in
            each entry.
    """

    suffix = LANCE_WAL_SUFFIX
    writes_fences = False

    def __init__(self, column_ids: Mapping[str, tuple[int, ...]]) -> None:
        """Keep the ids."""
        self._column_ids = dict(column_ids)
        self._shape: FileShape | None = None
        self._chosen: _Chosen | None = None

    def encode(
        self, rows: pa.Table, metadata: Mapping[str, str], storage_version: str, new_file: NewFile
    ) -> Sequence[memoryview] | Path:
        """Return the rows, the metadata and the checksum: as bytes, or as a file by Lance; see ``WalCodec.encode``."""
        noted = {**metadata, **self._noted_ids(rows.schema), CHECKSUM_KEY: EMPTY_SLOT}
        if FENCE_KEY in metadata:
            noted[_PADDING_KEY] = "." * _FENCE_BYTES
        parts = self._packed(rows, noted) if storage_version == PLAIN_VERSION else None
        if parts is not None:
            return sealed(parts, len(parts) - 1, (0, len(parts[-1])))
        path = new_file()
        try:
            _write_by_lance(path, rows, noted, storage_version)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if not isinstance(error, OSError | RuntimeError | ValueError):
                raise
            raise UnavailableError(
                "Lance could not write a file", remedy="check the disk, then try again", reason=str(error)
            ) from error
        return path

    def _packed(self, rows: pa.Table, metadata: Mapping[str, str]) -> list[Buffer] | None:
        shape = self._shape
        if shape is None or not shape.schema.equals(rows.schema, check_metadata=True):
            self._shape = shape = plain_shape(rows.schema)
            if shape is None:
                return None
        try:
            return pack(rows, shape, metadata) if rows.num_rows else None
        except NotPlainError:
            return None

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read and verify an entry; see ``WalCodec.read``."""
        return self.decode(store, region_id, wal_id, entry_bytes(store, region_id, wal_id, self.suffix))

    def _noted_ids(self, schema: pa.Schema) -> dict[str, str]:
        return {FIELD_IDS_KEY: field_ids_text(schema.names, self._column_ids)}

    def _schema_of(self, shape: EntryShape | None, known: KnownSchema, stored: Mapping[bytes, bytes]) -> pa.Schema:
        """Return the schema of an entry's rows, remembered from one entry to the next."""
        ids, last = stored.get(FIELD_IDS_KEY.encode()), self._chosen
        if last is not None and last.known is known and last.shape is shape and last.ids == ids:
            return last.schema
        found = with_field_ids(known.schema, ids)
        schema = shape.schema if shape is not None and shape.fits(found) else found
        self._chosen = _Chosen(known, ids, shape, schema)
        return schema

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
        """Verify an entry's bytes; see ``WalCodec.decode``."""
        try:
            if not verify_checksum(data, schema_range):
                refuse_unreadable(region_id, wal_id, self.suffix, "it has no checksum")
            version = _PLAIN_VERSION
            try:
                rows, stored = unpack(data, described_schema, partial(self._schema_of, shape))
            except NotPlainError:
                version = file_version(data)
                rows, stored = _read_with_lance(
                    store, wal_entry_path(region_id, wal_id, self.suffix), data, apart=apart
                )
                rows = _shaped(rows, stored, shape)
            rows.validate(full=True)
        except (OSError, RuntimeError, MemoryError, ValueError, pa.ArrowException) as error:
            # Of ours, Lance's and Arrow's: the checksum fits whatever bytes somebody gave it.
            if is_of_system(error):
                raise UnavailableError(
                    "a WAL entry could not be read here",
                    remedy=MAKE_ROOM,
                    region_id=str(region_id),
                    wal_id=wal_id,
                    reason=str(error),
                ) from error
            refuse_unreadable(region_id, wal_id, self.suffix, apparent_damage(data) or str(error), error)
        return described_entry(region_id, wal_id, stored, rows, len(data), version)


def is_lance_fence(store: ObjectStore, region_id: RegionId, wal_id: int, size_bytes: int) -> bool:
    """Tell whether an entry of this size only marks a claim; unreadable ones count as rows."""
    if not _FENCE_BYTES <= size_bytes <= _MOST_FENCE_BYTES:
        return False
    try:
        return LanceCodec({}).read(store, region_id, wal_id).is_fence
    except (CorruptionError, ObjectNotFoundError):
        return False


def file_version(data: bytes) -> tuple[int, int]:
    """Return the version of a Lance file as table manifests spell it, from its footer."""
    footer = read_file_footer(data, len(data))
    return _SPELT_VERSIONS.get((footer.major, footer.minor), (footer.major, footer.minor))


def _write_by_lance(path: Path, rows: pa.Table, metadata: Mapping[str, str], storage_version: str) -> None:
    schema = _uncompressed(rows.schema)
    with panics_raised(), LanceFileWriter(str(path), schema, version=storage_version) as writer:
        for key, value in metadata.items():
            writer.add_schema_metadata(key, value)
        for batch in pa.Table.from_arrays(compact_rows(rows).columns, schema=schema).to_batches():
            writer.write_batch(batch)
    data = read_written(path)
    before, digits, _ = sealed([data], 0, schema_range(data))
    with path.open("r+b") as file:
        file.seek(len(before))
        file.write(digits)


def _read_with_lance(store: ObjectStore, path: str, data: bytes, *, apart: bool) -> tuple[pa.Table, dict[bytes, bytes]]:
    with _local_file(store, path, data) as file, panics_raised():
        if apart:
            _require_decodable(file)
        reader = LanceFileReader(file)
        stored = dict(reader.metadata().schema.metadata or {})
        rows = reader.read_all(batch_size=_READ_BATCH_ROWS).to_table().replace_schema_metadata(None)
        return _with_json_as_text(rows), stored


def _with_json_as_text(rows: pa.Table) -> pa.Table:
    """Return rows with JSON as a table gives it: reads of files give the binary form in which Lance stores it."""
    names = [field.name for field in rows.schema if (field.metadata or {}).get(_EXTENSION_KEY) == _STORED_JSON]
    if not names:
        return rows
    texts = lance.write_dataset(rows.select(names), _IN_MEMORY).to_table()
    for field, column in zip(texts.schema, texts.columns, strict=True):
        rows = rows.set_column(rows.schema.get_field_index(field.name), field, column)
    return rows


def _require_decodable(file: str) -> None:
    """Refuse a file at which Lance ends the process."""
    try:
        decode_file_in_child(file, {})
    except CorruptionError as error:
        raise OSError(str(error.facts["reason"])) from error


def _shaped(rows: pa.Table, stored: Mapping[bytes, bytes], shape: EntryShape | None) -> pa.Table:
    found = with_field_ids(rows.schema, stored.get(FIELD_IDS_KEY.encode()))
    schema = shape.schema if shape is not None and shape.fits(found) else found
    return pa.Table.from_arrays(rows.columns, schema=schema)


@contextmanager
def _local_file(store: ObjectStore, path: str, data: bytes) -> Iterator[str]:
    """Give a local path with the verified bytes, so that nothing is fetched twice."""
    if store.kind is StoreKind.LOCAL:
        yield store.uri_of(path)
        return
    with scratch_directory("entry", store.staging_directory(path)) as scratch:
        file = scratch / f"entry{LANCE_WAL_SUFFIX}"
        file.write_bytes(data)
        yield str(file)


@type_cache(64)
def _uncompressed(schema: pa.Schema) -> pa.Schema:
    """Ask Lance not to compress text: looking for a dictionary takes longer than writing a small entry.

    The entry lives only until its rows are merged, where the base table's own encoding applies.
    """
    return pa.schema([f.with_metadata({**(f.metadata or {}), **_NO_COMPRESSION}) if _is_text(f) else f for f in schema])


def _is_text(field: pa.Field) -> bool:
    return bool(pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or _is_binary(field.type))


def _is_binary(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))
