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

    def request_rotation(self) -> None:
        """Ask it to freeze that MemTable soon; must not block."""
        ...


class MemoryBudget:
    """Asks the writer with the largest MemTable to flush it when all active MemTables together exceed the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._writers: weakref.WeakSet[Buffering] = weakref.WeakSet()
        self._lock = threading.Lock()

    def join(self, writer: Buffering) -> None:
        """Count a writer from now on, until it is garbage-collected."""
        with self._lock:
            self._writers.add(writer)

    def relieve(self) -> None:
        """Ask the writer with the largest MemTable to rotate if the bound is exceeded."""
        with self._lock:
            sizes = [(writer.buffered_bytes(), writer) for writer in self._writers]
        if sum(size for size, _ in sizes) > self._limit_bytes:
            max(sizes, key=lambda entry: entry[0])[1].request_rotation()
