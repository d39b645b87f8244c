"""The schema metadata and global buffers of an index file, read with the table's own store.

pylance's file reader waits for storage without giving up Python's interpreter lock. Where several
threads flush at once, Lance's worker threads then wait for that lock, the reader waits for them, and
the process stands still; so nothing here goes through it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.storage import ObjectStore

_FOOTER = struct.Struct("<QQQIIHH4s")
_BUFFER = struct.Struct("<QQ")
_MAGIC = b"LANC"
_LENGTH_DELIMITED, _VARINT, _FIXED64, _FIXED32 = 2, 0, 1, 5
_SCHEMA_FIELD, _METADATA_FIELD, _KEY_FIELD, _VALUE_FIELD = 1, 5, 1, 2


class IndexFile:
    """One Lance file of an index.

    Args:
        store: The table's store.
        path: Relative to the table.
    """

    def __init__(self, store: ObjectStore, path: str) -> None:
        """Read the footer and where the global buffers are.

        Raises:
            ObjectNotFoundError: There is no such file.
            CorruptionError: It is no Lance file.
        """
        self._store, self._path = store, path
        info = store.head(path)
        if info is None:
            raise ObjectNotFoundError("a file of an index is gone", remedy="create the index again", path=path)
        footer = store.get_range(path, info.size_bytes - _FOOTER.size, _FOOTER.size)
        *_, start, count, _, _, _, magic = _FOOTER.unpack(footer)
        if magic != _MAGIC:
            raise CorruptionError("a file of an index is no Lance file", remedy="create the index again", path=path)
        table = store.get_range(path, start, count * _BUFFER.size)
        self._buffers = list(_BUFFER.iter_unpack(table))

    def buffer(self, number: int) -> bytes:
        """Return a global buffer."""
        start, size = self._buffers[number]
        return self._store.get_range(self._path, start, size)

    def metadata(self, key: bytes) -> bytes:
        """Return a value of the schema metadata, which the first global buffer describes.

        Raises:
            CorruptionError: There is no such key.
        """
        for number, schema in fields_of(self.buffer(0)):
            if number != _SCHEMA_FIELD:
                continue
            for field, entry in fields_of(schema):
                pair = dict(fields_of(entry)) if field == _METADATA_FIELD else {}
                if pair.get(_KEY_FIELD) == key:
                    return pair.get(_VALUE_FIELD, b"")
        raise CorruptionError(
            "a file of an index lacks what describes it",
            remedy="create the index again",
            path=self._path,
            key=key.decode(),
        )


def fields_of(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Return the length-delimited fields of a protobuf message with their numbers; others are passed over."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _FIXED64:
            at += 8
        elif kind == _FIXED32:
            at += 4
        else:
            size, at = _varint(message, at)
            yield tag >> 3, message[at : at + size]
            at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
