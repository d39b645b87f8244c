"""One bound on the bytes that several region writers buffer together."""

from __future__ import annotations

import threading
import weakref
from typing import Protocol


class Buffering(Protocol):
    """A writer that buffers rows in memory."""

    def buffered_bytes(self) -> int:
        """Return the Arrow bytes of its active MemTable."""
        ...

    def request_rotation(self) -> bool:
        """Ask it to freeze that MemTable soon, and return whether it can; must not wait for storage."""
        ...


class MemoryBudget:
    """Asks the writer with the largest MemTable to flush it when all active MemTables together exceed the limit.

    A writer whose flushes make no progress is passed over, or the others would grow without being asked; above the
    limit it takes no rows itself.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._writers: weakref.WeakSet[Buffering] = weakref.WeakSet()
        self._lock = threading.Lock()

    def join(self, writer: Buffering) -> None:
        """Count a writer from now on, until it is garbage-collected."""
        with self._lock:
            self._writers.add(writer)

    def is_exceeded(self, more_bytes: int) -> bool:
        """Return whether the active MemTables would hold more than the limit with so many bytes more."""
        with self._lock:
            return sum(writer.buffered_bytes() for writer in self._writers) + more_bytes > self._limit_bytes

    def relieve(self) -> None:
        """Ask the writer with the largest MemTable that can rotate if the bound is exceeded."""
        with self._lock:
            sizes = [(writer.buffered_bytes(), writer) for writer in self._writers]
        if sum(size for size, _ in sizes) > self._limit_bytes:
            largest_first = sorted(sizes, key=lambda entry: entry[0], reverse=True)
            any(size and writer.request_rotation() for size, writer in largest_first)  # Ends with the first that can.
