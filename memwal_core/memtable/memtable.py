"""One MemTable: fragments in write order, and the WAL entry that holds each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from memwal_core.errors import InternalError


@dataclass(slots=True)
class Fragment:
    """The rows of one write.

    Attributes:
        rows: In write order, the MemTable schema.
        wal_id: The WAL entry that holds them; None while they are only in memory.
        position: Place among the fragments batched in that entry, from 0.
    """

    rows: pa.Table
    wal_id: int | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A WAL entry with rows of a MemTable: its position, its rows and the length of its file."""

    wal_id: int
    rows: int
    size_bytes: int


class MemTable:
    """The rows of one generation. Not thread-safe: its writer serialises changes.

    Args:
        generation: Its number, from 1.
        schema: The MemTable schema.
        replay_after_wal_id: WAL entries up to here belong to older generations.
        created: When it took its first place, timezone UTC.
    """

    def __init__(self, generation: int, schema: pa.Schema, replay_after_wal_id: int, created: datetime) -> None:
        """Start empty."""
        self.generation = generation
        self.schema = schema
        self.replay_after_wal_id = replay_after_wal_id
        self.created = created
        self._fragments: list[Fragment] = []
        self._pending: list[Fragment] = []
        self._last_wal_id = replay_after_wal_id
        self._rows = 0
        self._bytes = 0
        self._entries: list[StoredEntry] = []

    @property
    def fragments(self) -> Sequence[Fragment]:
        """All fragments; the index is the MemTable fragment id, from 0."""
        return tuple(self._fragments)

    @property
    def num_rows(self) -> int:
        """Rows held, older duplicates of a key included."""
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Arrow bytes of the rows held."""
        return self._bytes

    @property
    def wal_bytes(self) -> int:
        """Bytes of the WAL entries that hold its rows."""
        return sum(entry.size_bytes for entry in self._entries)

    @property
    def last_wal_id(self) -> int:
        """The last WAL entry with rows of this MemTable, or ``replay_after_wal_id`` if none has."""
        return self._last_wal_id

    def add(self, rows: pa.Table) -> int:
        """Take rows, readable at once and pending for the WAL.

        Returns:
            Their fragment id.
        """
        fragment = Fragment(rows)
        self._fragments.append(fragment)
        self._pending.append(fragment)
        self._count(rows)
        return len(self._fragments) - 1

    def add_replayed(self, rows: pa.Table, wal_id: int, size_bytes: int) -> None:
        """Take the rows of an existing WAL entry as one fragment, before all pending ones.

        A late entry of a predecessor lies before the pending rows in the WAL, and the WAL's order
        decides which row of a key is the newest.
        """
        self._advance(wal_id, rows.num_rows, size_bytes)
        self._fragments.insert(len(self._fragments) - len(self._pending), Fragment(rows, wal_id))
        self._count(rows)

    def pending(self) -> list[Fragment]:
        """Return the fragments that no WAL entry holds yet, in write order."""
        return list(self._pending)

    def mark_flushed(self, count: int, wal_id: int, size_bytes: int) -> None:
        """Record that one WAL entry now holds the first ``count`` pending fragments, in order."""
        self._advance(wal_id, sum(fragment.rows.num_rows for fragment in self._pending[:count]), size_bytes)
        for position, fragment in enumerate(self._pending[:count]):
            fragment.wal_id = wal_id
            fragment.position = position
        del self._pending[:count]

    def wal_mapping(self) -> dict[int, tuple[int, int]]:
        """Return fragment id -> (WAL entry relative to ``replay_after_wal_id``, position in it)."""
        return {
            fragment_id: (fragment.wal_id - self.replay_after_wal_id, fragment.position)
            for fragment_id, fragment in enumerate(self._fragments)
            if fragment.wal_id is not None
        }

    def stored_entries(self) -> tuple[StoredEntry, ...]:
        """Return the WAL entries that hold this MemTable's rows, ascending."""
        return tuple(self._entries)

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows in write order, older duplicates and tombstones included."""
        names = list(columns) if columns is not None else self.schema.names
        empty = self.schema.empty_table().select(names)
        return pa.concat_tables([empty, *(fragment.rows.select(names) for fragment in self._fragments)])

    def _advance(self, wal_id: int, rows: int, size_bytes: int) -> None:
        if wal_id != self._last_wal_id + 1:
            raise InternalError(
                "the WAL entries of a MemTable must follow each other",
                remedy="report this",
                wal_id=wal_id,
                last_wal_id=self._last_wal_id,
                generation=self.generation,
            )
        self._last_wal_id = wal_id
        self._entries.append(StoredEntry(wal_id, rows, size_bytes))

    def _count(self, rows: pa.Table) -> None:
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
