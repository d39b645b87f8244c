"""A checksum inside the file that it covers.

The schema metadata of an entry has a slot of fixed length. The checksum is XXH3 (64 bits) of all bytes
of the file with zeros in the slot's digits, and is then written into the slot, which changes no length
or offset. So an entry stays an ordinary Lance or Arrow file, and a changed byte anywhere in it, footer
and padding included, is detected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa
import xxhash

CHECKSUM_KEY = "memwal:checksum"
_MARK = b"memwal-xxh3:"
_DIGITS = 16
EMPTY_SLOT = (_MARK + b"0" * _DIGITS).decode()
"""What a codec writes as the value of ``CHECKSUM_KEY`` before ``sealed``."""

FindRange = Callable[[bytes], tuple[int, int]]
"""Returns start and end of a file's schema metadata."""


Buffer: TypeAlias = "bytes | memoryview | pa.Buffer"
"""A part of a file in memory."""


class ChecksumError(ValueError):
    """The bytes are not those that were sealed."""


def sealed(parts: Sequence[Buffer], slot_part: int, slot_range: tuple[int, int]) -> list[memoryview]:
    """Fill the slot of a file in memory without a copy, and return its content as views of single bytes.

    ``slot_part`` is the index of the part that contains ``EMPTY_SLOT``, ``slot_range`` the start and end of the
    schema metadata in it.
    """
    digest = xxhash.xxh3_64()
    for part in parts:
        digest.update(part)
    views = [memoryview(part).cast("B") for part in parts]
    view = views[slot_part]
    start, end = slot_range
    at = bytes(view[start:end]).rfind(EMPTY_SLOT.encode())
    if at < 0:
        raise ChecksumError("there is no slot for the checksum")
    slot = start + at + len(_MARK)
    digits = memoryview(digest.hexdigest().encode())
    return [*views[:slot_part], view[:slot], digits, view[slot + _DIGITS :], *views[slot_part + 1 :]]


def verify_checksum(data: bytes, metadata_range: FindRange) -> bool:
    """Check a file's bytes against the checksum inside; return whether it has one (a foreign file may not).

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
