"""The unflushed MemTables of a region: one active, the full ones waiting behind each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from memwal_core.errors import InternalError
from memwal_core.format.region_manifest.model import FlushedGeneration
from memwal_core.memtable.memtable import Fragment, MemTable


@dataclass(slots=True, eq=False)
class Waiting:
    """A full MemTable that waits for its flush.

    Attributes:
        since: Monotonic time at which it was frozen.
        record: The flushed MemTable once the manifest records it.
    """

    memtable: MemTable
    since: float
    record: FlushedGeneration | None = None


class MemTableQueue:
    """Generations in order: waiting ones, oldest first, then the active one. Not thread-safe.

    The active generation is always that of the oldest unflushed MemTable plus the queue's length. The first
    active MemTable has an open WAL range.
    """

    def __init__(self, active: MemTable) -> None:
        self._active = active
        self._waiting: deque[Waiting] = deque()

    @property
    def active(self) -> MemTable:
        """The MemTable that takes writes."""
        return self._active

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The full MemTables, oldest generation first."""
        return tuple(self._waiting)

    @property
    def all(self) -> tuple[MemTable, ...]:
        """Every MemTable, oldest generation first, the active one last."""
        return (*(entry.memtable for entry in self._waiting), self._active)

    @property
    def oldest(self) -> Waiting | None:
        """The MemTable whose flush is next; None if none waits."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting_bytes(self) -> int:
        """Arrow bytes of the MemTables that wait."""
        return sum(entry.memtable.size_bytes for entry in self._waiting)

    def rotate(self, schema: pa.Schema, now: datetime, monotonic: float) -> Waiting:
        """Freeze the active MemTable, replace it by an empty one and return it, now last in the queue."""
        frozen = self._active
        frozen.freeze()
        entry = Waiting(frozen, monotonic)
        self._waiting.append(entry)
        self._active = MemTable(frozen.generation + 1, schema, None, now)
        self.open_ranges()
        return entry

    def unstored(self) -> list[tuple[MemTable, list[Fragment]]]:
        """Return what is not in the WAL yet: one batch per MemTable, in generation order.

        Each batch becomes a WAL entry of its own, so that no entry has rows of two generations.
        """
        return [(memtable, memtable.pending()) for memtable in self.all if not memtable.is_stored]

    def open_ranges(self) -> None:
        """Open the WAL range of every MemTable whose predecessor is stored to its last row."""
        for older, newer in zip(self.all, self.all[1:], strict=False):
            if not older.is_stored or older.last_wal_id is None:
                return
            newer.open_range(older.last_wal_id)

    def release(self, flushed: Waiting, record: FlushedGeneration) -> None:
        """Drop the oldest MemTable, whose flush is recorded; readers that reference it may go on."""
        if not self._waiting or self._waiting[0] is not flushed:
            raise InternalError(
                "MemTables leave the queue in the order of their generations",
                remedy="report this",
                generation=flushed.memtable.generation,
                queued=[entry.memtable.generation for entry in self._waiting],
            )
        flushed.record = record
        self._waiting.popleft()
