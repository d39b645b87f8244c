"""A file that is read in ranges, none of which lies outside of it."""

from __future__ import annotations

from collections.abc import Callable

from memwal_core.format.malformed import MalformedError

ReadRange = Callable[[int, int], bytes]
"""Reads ``length`` bytes from ``start`` of one file."""


class BoundedFile:
    """A file of known size. Its end is read at once and kept, because formats with a footer begin there."""

    def __init__(self, size_bytes: int, read: ReadRange, tail_bytes: int) -> None:
        """Read the end."""
        self.size_bytes = size_bytes
        self._read = read
        self._start = max(0, size_bytes - tail_bytes)
        self.tail = self._received(self._start, size_bytes - self._start)

    def range(self, start: int, length: int) -> bytes:
        """Return a part of the file; nothing is read if it is not within it.

        Raises:
            MalformedError: It is not, or the file has become shorter.
        """
        if start < 0 or length < 0 or length > self.size_bytes - start:
            raise MalformedError(f"{length} bytes at {start} lie outside of a file of {self.size_bytes} bytes")
        if start >= self._start:
            return self.tail[start - self._start : start - self._start + length]
        return self._received(start, length)

    def _received(self, start: int, length: int) -> bytes:
        if not length:
            return b""  # Object stores refuse to read nothing.
        found = self._read(start, length)
        if len(found) != length:
            raise MalformedError(f"{len(found)} of {length} bytes came from {start}")
        return found
