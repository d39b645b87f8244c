"""From the entries of a WAL to the rows of a MemTable."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable, StoredEntry
from memwal_core.native.casting import no_rows
from memwal_core.wal import EntryShape, WalEntry, noted_column_ids, same_columns
from memwal_core.writer.claim.ownership import Ownership


def leading_run(entries: Sequence[WalEntry]) -> Sequence[WalEntry]:
    """Return the entries up to the first whose rows have another schema than those before.

    A tail of two schemas arises when a fenced predecessor, which had not noticed a change of the table's
    schema, wrote its last entry before its successor's first.
    """
    first: pa.Schema | None = None
    for number, entry in enumerate(entries):
        if entry.is_fence:
            continue
        if first is None:
            first = entry.rows.schema
        elif not same_columns(entry.rows.schema, first):
            return entries[:number]
    return entries


def replay(entries: Sequence[WalEntry], memtable: MemTable, shape: EntryShape, ownership: Ownership) -> None:
    """Put the unflushed entries of a region into its first, empty MemTable, one fragment each.

    Raises:
        FencedError: An entry has a higher epoch than ours; give the claim up.
        CorruptionError: An entry does not fit the table. Only the epoch was changed.
    """
    replayed = []
    for entry in entries:
        if entry.writer_epoch > ownership.epoch:
            raise ownership.fenced_by_entry(entry.wal_id, entry.writer_epoch)
        replayed.append(rows_of_entry(entry, shape, ownership.region_id))
    memtable.add_all_replayed(
        [stored_entry(entry, rows) for entry, rows in zip(entries, replayed, strict=True)], replayed
    )


def stored_entry(entry: WalEntry, rows: pa.Table) -> StoredEntry:
    """Return what a MemTable remembers of an entry that gave it these rows."""
    return StoredEntry(entry.wal_id, rows.num_rows, entry.size_bytes, entry.file_version, entry.attempt)


def rows_of_entry(entry: WalEntry, shape: EntryShape, region_id: RegionId) -> pa.Table:
    """Return an entry's rows in the MemTable schema.

    Raises:
        CorruptionError: The entry has other columns, or one that was dropped and added again since.
    """
    schema = shape.schema
    if entry.is_fence:
        return no_rows(schema)
    found = entry.rows.schema
    if found.equals(schema, check_metadata=True):
        return entry.rows
    if not shape.fits(found):
        raise CorruptionError(
            "a WAL entry has another schema than the table",
            remedy="reopen the region with the table version that its last writer used, and flush it",
            region_id=str(region_id),
            wal_id=entry.wal_id,
            expected=str(schema.remove_metadata()),
            expected_field_ids=dict(shape.column_ids),
            found_field_ids=noted_column_ids(found),
            found=str(found.remove_metadata()),
        )
    # Only metadata may differ, so no value needs to be cast.
    return pa.Table.from_arrays(entry.rows.columns, schema=schema)
