"""A checksum inside the file that it covers.

The schema metadata of an entry holds a slot of fixed length. The checksum is XXH3 (64 bits) of all
bytes of the file with zeros in the slot's digits, and is written into the slot afterwards, which
changes no length or offset. So an entry stays one ordinary Lance or Arrow file, and a changed byte
anywhere in it, footer and padding included, is found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import xxhash

CHECKSUM_KEY = "memwal:checksum"
_MARK = b"memwal-xxh3:"
_DIGITS = 16
EMPTY_SLOT = (_MARK + b"0" * _DIGITS).decode()
"""What a codec writes as the value of ``CHECKSUM_KEY`` before ``seal``."""

FindRange = Callable[[bytes], tuple[int, int]]
"""Gives the part of a file that holds its schema metadata, as start and end."""


Buffer: TypeAlias = "bytes | memoryview | pa.Buffer"
"""A part of a file, in memory."""

_MAX_VECTORS = 1024
"""Parts that the operating system takes in one call."""
_JOINED_BYTES = 256 * 1024
"""Up to this size one copy costs less than handing over the parts one by one."""


class ChecksumError(ValueError):
    """The bytes are not those that were sealed."""


def seal(path: Path, metadata_range: FindRange) -> None:
    """Fill the slot of a file that was just written.

    Args:
        path: The file; its schema metadata has ``EMPTY_SLOT``.
        metadata_range: Where the codec keeps schema metadata.

    Raises:
        ChecksumError: The file has no slot.
    """
    data = path.read_bytes()
    slot = _slot(data, metadata_range)
    if slot is None:
        raise ChecksumError("there is no slot for the checksum")
    with path.open("r+b") as file:
        file.seek(slot)
        file.write(_digest(data, slot))


def write_sealed(path: Path, parts: Sequence[Buffer], slot_part: int, slot_range: tuple[int, int]) -> int:
    """Write a file from parts that lie in memory, its slot filled; nothing is copied or read back.

    Args:
        path: A file that does not exist yet.
        parts: Its content in order.
        slot_part: Number of the part that holds ``EMPTY_SLOT``.
        slot_range: Where in that part the schema metadata lies, as start and end.

    Returns:
        The length of the file in bytes.

    Raises:
        ChecksumError: There is no slot.
    """
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    view = memoryview(parts[slot_part]).cast("B")
    start, end = slot_range
    at = bytes(view[start:end]).rfind(EMPTY_SLOT.encode())
    if at < 0:
        raise ChecksumError("there is no slot for the checksum")
    slot = start + at + len(_MARK)
    sealed = (view[:slot], digest.hexdigest().encode(), view[slot + _DIGITS :])
    return _write_all(path, [*parts[:slot_part], *sealed, *parts[slot_part + 1 :]])


def _write_all(path: Path, parts: Sequence[Buffer]) -> int:
    pending = [view for view in (memoryview(part).cast("B") for part in parts) if view.nbytes]
    total = sum(view.nbytes for view in pending)
    if total <= _JOINED_BYTES:
        pending = [memoryview(b"".join(pending))]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        while pending:
            written = os.writev(descriptor, pending[:_MAX_VECTORS])
            while pending and written >= pending[0].nbytes:
                written -= pending.pop(0).nbytes
            if written:
                pending[0] = pending[0][written:]
    finally:
        os.close(descriptor)
    return total


def verify(data: bytes, metadata_range: FindRange) -> bool:
    """Check a file's bytes against the checksum inside.

    Returns:
        Whether there is one; a file without may be foreign.

    Raises:
        ChecksumError: The bytes have changed since they were sealed.
    """
    slot = _slot(data, metadata_range)
    if slot is None:
        return False
    found, expected = data[slot : slot + _DIGITS], _digest(data, slot)
    if found != expected:
        raise ChecksumError(f"the checksum is {found!r} where the bytes give {expected!r}")
    return True


def _slot(data: bytes, metadata_range: FindRange) -> int | None:
    start, end = metadata_range(data)
    at = data.rfind(_MARK, max(start, 0), min(end, len(data)))
    slot = at + len(_MARK)
    return slot if at >= 0 and slot + _DIGITS <= len(data) else None


def _digest(data: bytes, slot: int) -> bytes:
    digest = xxhash.xxh3_64()
    view = memoryview(data)
    digest.update(view[:slot])
    digest.update(b"0" * _DIGITS)
    digest.update(view[slot + _DIGITS :])
    return digest.hexdigest().encode()
