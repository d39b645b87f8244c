"""Messages with their length in front, as in table manifests: a little-endian u32 and the bytes."""

from __future__ import annotations

import struct

from memwal_core.format.bounded import BoundedFile

_LENGTH = struct.Struct("<I")


def framed(message: bytes) -> bytes:
    """Return a message with its length in front."""
    return _LENGTH.pack(len(message)) + message


def read_framed(file: BoundedFile, start: int) -> bytes:
    """Return the message whose length is at ``start``.

    Raises:
        MalformedError: It does not end within the file.
    """
    (length,) = _LENGTH.unpack(file.range(start, _LENGTH.size))
    return file.range(start + _LENGTH.size, length)
