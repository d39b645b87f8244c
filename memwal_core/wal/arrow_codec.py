"""The ``arrow`` codec: an entry is an Arrow IPC stream, as pylance's own writer makes and reads them.

pylance's entries carry no checksum, so only Arrow's own checks apply to them. Ours carry one. Lance
refuses unknown keys in the schema metadata of an entry with rows, and the one that LanceDB's client
bundles knows the table's and the epoch alone; all else is custom metadata of the first batch's message,
which both ignore.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import pyarrow as pa

from memwal_core.errors import ObjectNotFoundError
from memwal_core.format.checksum import CHECKSUM_KEY, EMPTY_SLOT, ChecksumError, sealed, verify_checksum
from memwal_core.format.malformed import apparent_damage
from memwal_core.format.paths import ARROW_WAL_SUFFIX, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.entry import (
    ATTEMPT_KEY,
    FENCE_KEY,
    FIELD_ID_KEY,
    FIELD_IDS_KEY,
    WRITER_EPOCH_KEY,
    EntryShape,
    NewFile,
    WalEntry,
    described_entry,
    entry_bytes,
    field_ids_text,
    refuse_unreadable,
    with_field_ids,
)

_MESSAGE = struct.Struct("<iI")
_CONTINUATION = -1
_FENCE_BYTES = 65_536
"""A fence is a schema without rows, so its beginning is all of it."""


class ArrowCodec:
    """Entries as Arrow IPC streams.

    The field ids of columns and the metadata of the table's schema are written into them, as pylance does: it replays
    no entry that lacks them. ``column_ids`` are as for ``LanceCodec``.
    """

    suffix = ARROW_WAL_SUFFIX
    writes_fences = True

    def __init__(
        self, column_ids: Mapping[str, tuple[int, ...]], table_metadata: Mapping[bytes, bytes] | None = None
    ) -> None:
        self._column_ids = dict(column_ids)
        # A fence is one by its metadata alone: rows must not pass for it.
        self._table_metadata = {k: v for k, v in (table_metadata or {}).items() if k != FENCE_KEY.encode()}

    def encode(
        self,
        rows: pa.Table,
        metadata: Mapping[str, str],
        storage_version: str,  # noqa: ARG002  (Arrow has none)
        new_file: NewFile,  # noqa: ARG002  (all is made in memory)
    ) -> Sequence[memoryview]:
        """Return the rows, the metadata and the checksum as bytes; see ``WalCodec.encode``."""
        sink = pa.BufferOutputStream()
        if FENCE_KEY in metadata:
            schema = pa.schema([], metadata={**metadata, CHECKSUM_KEY: EMPTY_SLOT})
            with pa.ipc.new_stream(sink, schema):
                pass
        else:
            shared = {**self._table_metadata, WRITER_EPOCH_KEY.encode(): metadata[WRITER_EPOCH_KEY].encode()}
            ids = field_ids_text(rows.schema.names, self._column_ids)
            own = {**metadata, FIELD_IDS_KEY: ids, CHECKSUM_KEY: EMPTY_SLOT}
            del own[WRITER_EPOCH_KEY]
            schema = pa.schema([self._with_id(field) for field in rows.schema], metadata=shared)
            with pa.ipc.new_stream(sink, schema) as writer:
                named = pa.Table.from_arrays(rows.columns, schema=schema)
                for number, batch in enumerate(named.combine_chunks().to_batches()):
                    writer.write_batch(batch, custom_metadata=None if number else own)
        data = memoryview(sink.getvalue())
        return sealed([data], 0, metadata_range(data))

    def read(self, store: ObjectStore, region_id: RegionId, wal_id: int) -> WalEntry:
        """Read and verify an entry; see ``WalCodec.read``."""
        return self.decode(store, region_id, wal_id, entry_bytes(store, region_id, wal_id, self.suffix))

    def decode(
        self,
        store: ObjectStore,  # noqa: ARG002  (all that is needed is in the bytes)
        region_id: RegionId,
        wal_id: int,
        data: bytes,
        shape: EntryShape | None = None,
        *,
        apart: bool = False,  # noqa: ARG002  (Arrow reads them, which validates)
    ) -> WalEntry:
        """Verify an entry's bytes; see ``WalCodec.decode``."""
        try:
            is_sealed = verify_checksum(data, metadata_range)
            rows, stored = _decoded(data)
            # A checksum proves that nothing was damaged, not that nobody made both.
            rows.validate(full=True)
        except (OSError, MemoryError, ValueError, pa.ArrowException) as error:
            refuse_unreadable(region_id, wal_id, self.suffix, apparent_damage(data) or str(error), error)
        if not is_sealed and (ATTEMPT_KEY.encode() in stored or CHECKSUM_KEY.encode() in stored):
            refuse_unreadable(region_id, wal_id, self.suffix, "this project wrote it, and its checksum is damaged")
        found = with_field_ids(rows.schema, stored.get(FIELD_IDS_KEY.encode()))
        schema = shape.schema if shape is not None and shape.fits(found) else found
        rows = pa.Table.from_arrays(rows.columns, schema=schema)
        return described_entry(region_id, wal_id, stored, rows, len(data))

    def _with_id(self, field: pa.Field) -> pa.Field:
        ids = self._column_ids.get(field.name)
        if ids is None:
            return field
        return field.with_metadata({**(field.metadata or {}), FIELD_ID_KEY: str(ids[0]).encode()})


def is_arrow_fence(store: ObjectStore, region_id: RegionId, wal_id: int) -> bool:
    """Tell whether an entry only marks a claim, reading no more than its beginning; unreadable ones count as rows."""
    path = wal_entry_path(region_id, wal_id, ARROW_WAL_SUFFIX)
    try:
        schema = pa.ipc.open_stream(store.get_range(path, 0, _FENCE_BYTES)).schema
    except (pa.ArrowInvalid, OSError, ObjectNotFoundError):
        return False
    return FENCE_KEY.encode() in (schema.metadata or {})


def metadata_range(data: bytes | memoryview) -> tuple[int, int]:
    """Return start and end of what may hold the checksum: the metadata of a stream's first batch, or its schema.

    Raises:
        ChecksumError: The stream does not begin with a message.
    """
    start = _MESSAGE.size
    batch = start + _message_size(data, 0)
    while (size := _message_size(data, batch)) and (values := _dictionary_size(data, batch)):
        # Text that looks like a slot may be among the values.
        start = batch = batch + values
    # The end of a stream is a message of size 0.
    return start, batch + _MESSAGE.size + size


def _dictionary_size(data: bytes | memoryview, start: int) -> int:
    """Return the length of a message with the values of a dictionary; 0 if it is another message."""
    source = pa.BufferReader(memoryview(data)[start:])
    try:
        message = pa.ipc.read_message(source)
    except (OSError, pa.ArrowException) as error:
        raise ChecksumError("the stream has something else where a message should be") from error
    return int(source.tell()) if message.type == "dictionary" else 0


def _message_size(data: bytes | memoryview, start: int) -> int:
    """Return the length of a message's metadata; ``ChecksumError`` if no message is there."""
    if len(data) < start + _MESSAGE.size:
        raise ChecksumError("the stream is truncated")
    continuation, size = _MESSAGE.unpack_from(data, start)
    if continuation != _CONTINUATION:
        raise ChecksumError("the stream has something else where a message should be")
    return int(size)


def _decoded(data: bytes) -> tuple[pa.Table, dict[bytes, bytes]]:
    with pa.ipc.open_stream(data) as reader:
        stored = dict(reader.schema.metadata or {})
        batches = []
        for batch, custom in reader.iter_batches_with_custom_metadata():
            batches.append(batch)
            stored |= dict(custom or {})
        return pa.Table.from_batches(batches, schema=reader.schema).replace_schema_metadata(None), stored
