"""One MemTable: fragments in write order, and the WAL entry that holds each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from memwal_core.errors import InternalError
from memwal_core.native.casting import no_rows


@dataclass(slots=True, eq=False)
class Fragment:
    """The rows of one write.

    Attributes:
        rows: In write order, the MemTable schema.
        size_bytes: Arrow bytes of the rows; a share in proportion to rows where several were counted together.
        wal_id: The WAL entry that has them; None while they are only in memory.
        position: Place among the fragments of that entry, from 0.
    """

    rows: pa.Table
    size_bytes: int
    wal_id: int | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A WAL entry with rows of a MemTable.

    Attributes:
        file_version: Version of its Lance file if it was replayed; None if this MemTable's writer wrote it.
        attempt: The mark that no other entry has; empty on foreign entries.
    """

    wal_id: int
    rows: int
    size_bytes: int
    file_version: tuple[int, int] | None = None
    attempt: str = ""


class MemTable:
    """The rows of one generation. Its writer serialises changes; reading is safe from any thread.

    A MemTable owns a range of consecutive WAL entries, those after ``replay_after_wal_id``. The range opens
    behind that of the preceding generation, whose last rows may still have to be written: until then it is
    None and nothing of this MemTable can be stored. The writer moves ``created`` (UTC) to the time of the
    first row.
    """

    def __init__(self, generation: int, schema: pa.Schema, replay_after_wal_id: int | None, created: datetime) -> None:
        self.generation = generation
        self.schema = schema
        self.created = created
        self._replay_after = replay_after_wal_id
        self._fragments: list[Fragment] = []
        self._pending: list[Fragment] = []
        self._pending_bytes = 0
        self._last_wal_id = replay_after_wal_id
        self._rows = 0
        self._bytes = 0
        self._entries: list[StoredEntry] = []
        self._frozen = False

    @property
    def fragments(self) -> Sequence[Fragment]:
        """All fragments; the index is the MemTable fragment id, from 0."""
        return tuple(self._fragments)

    def fragments_from(self, first: int) -> Sequence[Fragment]:
        """Return the fragments from an index on, without reading the earlier ones."""
        return self._fragments[first:]

    @property
    def num_rows(self) -> int:
        """Number of rows, older duplicates of a key included."""
        return self._rows

    @property
    def size_bytes(self) -> int:
        """Arrow bytes of the rows."""
        return self._bytes

    @property
    def pending_bytes(self) -> int:
        """Arrow bytes of the rows that are in no WAL entry yet."""
        return self._pending_bytes

    @property
    def wal_bytes(self) -> int:
        """Bytes of the WAL entries of its rows."""
        return sum(entry.size_bytes for entry in self._entries)

    @property
    def is_stored(self) -> bool:
        """Whether all of its rows are in the WAL."""
        return not self._pending

    @property
    def replay_after_wal_id(self) -> int | None:
        """WAL entries up to here belong to older generations; None while its range is not open."""
        return self._replay_after

    @property
    def last_wal_id(self) -> int | None:
        """The last WAL entry of its range so far, ``replay_after_wal_id`` if it has none."""
        return self._last_wal_id

    def open_range(self, replay_after_wal_id: int) -> None:
        """Let its WAL entries begin behind this one; does nothing if the range is open.

        Call it when the preceding generation is frozen and stored, so that its last entry is final.
        """
        if self._replay_after is None:
            self._replay_after = replay_after_wal_id
            self._last_wal_id = replay_after_wal_id

    def freeze(self) -> None:
        """Accept no more writes; pending rows still go to the WAL."""
        self._frozen = True

    def add(self, rows: pa.Table, size_bytes: int | None = None) -> Fragment:
        """Add rows, readable at once and pending for the WAL, and return them as the new last fragment.

        ``size_bytes`` are their Arrow bytes if the caller has counted them, because counting is slow.
        """
        if self._frozen:
            raise InternalError("a frozen MemTable was written to", remedy="report this", generation=self.generation)
        fragment = Fragment(rows, int(rows.nbytes) if size_bytes is None else size_bytes)
        self._fragments.append(fragment)
        self._pending.append(fragment)
        self._pending_bytes += fragment.size_bytes
        self._count(fragment)
        return fragment

    def add_replayed(self, rows: pa.Table, entry: StoredEntry) -> None:
        """Add the rows of an existing WAL entry as one fragment, before all pending ones.

        A late entry of a predecessor precedes the pending rows in the WAL, and the WAL's order decides which
        row of a key is the newest.
        """
        fragment = Fragment(rows, int(rows.nbytes), entry.wal_id)
        fragments = list(self._fragments)
        fragments.insert(len(fragments) - len(self._pending), fragment)
        self._advance(entry)  # What may fail for want of memory comes before it.
        self._fragments = fragments
        self._count(fragment)

    def add_all_replayed(self, entries: Sequence[StoredEntry], rows: Sequence[pa.Table]) -> None:
        """Add the rows of many existing WAL entries (ascending), one fragment each, before any pending ones.

        Their bytes are counted together: one by one that takes as long as reading the entries.
        """
        size_bytes = int(pa.concat_tables([no_rows(self.schema), *rows]).nbytes)
        count = max(1, sum(entry.rows for entry in entries))
        fragments = []
        for entry, of_entry in zip(entries, rows, strict=True):
            self._advance(entry)
            fragments.append(Fragment(of_entry, size_bytes * entry.rows // count, entry.wal_id))
        at = len(self._fragments) - len(self._pending)
        self._fragments[at:at] = fragments
        self._rows += sum(entry.rows for entry in entries)
        self._bytes += size_bytes

    def pending(self) -> list[Fragment]:
        """Return the fragments that are in no WAL entry yet, in write order."""
        return list(self._pending)

    def mark_flushed(self, count: int, wal_id: int, size_bytes: int, attempt: str = "") -> None:
        """Record that one WAL entry, written by ``attempt``, now has the first ``count`` pending fragments."""
        written = self._pending[:count]
        rows = sum(fragment.rows.num_rows for fragment in written)
        rest, rest_bytes = self._pending[count:], self._pending_bytes - sum(each.size_bytes for each in written)
        for position, fragment in enumerate(written):
            fragment.wal_id = wal_id
            fragment.position = position
        self._advance(StoredEntry(wal_id, rows, size_bytes, attempt=attempt))  # All that may fail comes before it.
        self._pending, self._pending_bytes = rest, rest_bytes

    def wal_mapping(self) -> dict[int, tuple[int, int]]:
        """Return fragment id -> (WAL entry relative to ``replay_after_wal_id``, position in it)."""
        after = self._replay_after or 0
        return {
            fragment_id: (fragment.wal_id - after, fragment.position)
            for fragment_id, fragment in enumerate(self._fragments)
            if fragment.wal_id is not None
        }

    def stored_entries(self) -> tuple[StoredEntry, ...]:
        """Return the WAL entries of this MemTable's rows, ascending."""
        return tuple(self._entries)

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows in write order, older duplicates and tombstones included."""
        names = list(columns) if columns is not None else self.schema.names
        empty = no_rows(self.schema).select(names)
        return pa.concat_tables([empty, *(fragment.rows.select(names) for fragment in self.fragments)])

    def _advance(self, entry: StoredEntry) -> None:
        if self._last_wal_id is None or entry.wal_id != self._last_wal_id + 1:
            raise InternalError(
                "the WAL entries of a MemTable must follow each other",
                remedy="report this",
                wal_id=entry.wal_id,
                last_wal_id=self._last_wal_id,
                generation=self.generation,
            )
        self._entries.append(entry)
        self._last_wal_id = entry.wal_id

    def _count(self, fragment: Fragment) -> None:
        self._rows += fragment.rows.num_rows
        self._bytes += fragment.size_bytes
