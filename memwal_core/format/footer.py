"""The footers of Lance's data files and table manifests. Numbers are little-endian, positions are offsets in the file.

A data file ends with its columns' metadata, the places of these, the places of its global buffers, and 40 bytes
that say where all that is. The first global buffer describes the schema. A table manifest ends with 16 bytes that
say where its ``Manifest`` message is.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from memwal_core.format.malformed import MalformedError

_FILE = struct.Struct("<QQQIIHH4s")
_MANIFEST = struct.Struct("<QHH4s")
MAGIC = b"LANC"
"""The last bytes of every file of Lance."""

FILE_FOOTER_BYTES = _FILE.size
PLACE = struct.Struct("<QQ")
"""Position and length of a column's metadata, or of a global buffer."""


class FileFooter(NamedTuple):
    """The footer of a data file."""

    columns_start: int
    column_places: int
    buffer_places: int
    buffers: int
    columns: int
    major: int
    minor: int

    def pack(self) -> bytes:
        """Return the footer's bytes."""
        return _FILE.pack(*self, MAGIC)


class ManifestFooter(NamedTuple):
    """The footer of a table manifest.

    Attributes:
        manifest: Where the length of the ``Manifest`` message is, followed by the message.
    """

    manifest: int
    major: int
    minor: int

    def pack(self) -> bytes:
        """Return the footer's bytes."""
        return _MANIFEST.pack(*self, MAGIC)


def read_file_footer(tail: bytes, size_bytes: int) -> FileFooter:
    """Read the footer of a data file.

    Args:
        tail: The end of the file, or all of it.
        size_bytes: Of the whole file.

    Returns:
        A footer whose tables of places lie within the file; the places themselves are not looked at.

    Raises:
        MalformedError: This is not a Lance file, or a table lies outside of it.
    """
    at, body = len(tail) - _FILE.size, size_bytes - _FILE.size
    if at < 0:
        raise MalformedError(f"{len(tail)} bytes are too short for the footer of a Lance file")
    columns_start, column_places, buffer_places, buffers, columns, major, minor, magic = _FILE.unpack_from(tail, at)
    if magic != MAGIC:
        raise MalformedError("the footer is not that of a Lance file")
    column_places_end, buffer_places_end = column_places + columns * PLACE.size, buffer_places + buffers * PLACE.size
    if columns_start > body or column_places_end > body or buffer_places_end > body:
        raise MalformedError("the footer points outside of the file")
    return FileFooter(columns_start, column_places, buffer_places, buffers, columns, major, minor)


def read_manifest_footer(tail: bytes) -> ManifestFooter:
    """Read the footer of a table manifest; its position is not looked at.

    Args:
        tail: The end of the file, or all of it.

    Raises:
        MalformedError: This is not a table manifest.
    """
    at = len(tail) - _MANIFEST.size
    if at < 0:
        raise MalformedError(f"{len(tail)} bytes are too short for the footer of a table manifest")
    *numbers, magic = _MANIFEST.unpack_from(tail, at)
    if magic != MAGIC:
        raise MalformedError("the footer is not that of a table manifest")
    return ManifestFooter(*numbers)
