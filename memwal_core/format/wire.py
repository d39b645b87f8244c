"""Protobuf's wire format by hand, for WAL entries: there the protobuf library takes longer than all the rest.

Everything else goes through ``messages``.
"""

from __future__ import annotations

from memwal_core.format.malformed import MalformedError

_MAX_UINT64 = 2**64 - 1
_MAX_SHIFT = 63
"""Of the last byte of a varint: ten bytes hold 64 bits."""


def varint(number: int) -> bytes:
    """Return an unsigned number as a varint."""
    if number < 0x80:
        return _SMALL[number]
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number and where it ends.

    Raises:
        MalformedError: It has more than 64 bits, or the data end within it.
    """
    try:
        digit = data[at]
        if digit < 0x80:
            return digit, at + 1
        number, shift = digit & 0x7F, 7
        while shift <= _MAX_SHIFT:
            at += 1
            digit = data[at]
            number |= (digit & 0x7F) << shift
            if digit < 0x80:
                break
            shift += 7
    except IndexError as error:
        raise MalformedError("the bytes end within a varint") from error
    if shift > _MAX_SHIFT or number > _MAX_UINT64:
        raise MalformedError("a varint has more than 64 bits")
    return number, at + 1


def number(field: int, value: int) -> bytes:
    """Return a field below 16 that holds an unsigned number."""
    return _SMALL[field << 3] + varint(value)


def nested(field: int, content: bytes) -> bytes:
    """Return a field below 16 that holds bytes or a message."""
    return _SMALL[field << 3 | 2] + varint(len(content)) + content


_SMALL = [bytes((number,)) for number in range(0x80)]
