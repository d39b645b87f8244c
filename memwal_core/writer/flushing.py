"""How the MemTables of one region become flushed MemTables: by the region's codec and the table's layout."""

from __future__ import annotations

from dataclasses import dataclass

import lance

from memwal_core.flush import (
    FlushPlan,
    newest_rows,
    plan_flush,
    rewrite_memtable,
    write_companions,
    write_flushed_memtable,
)
from memwal_core.ids import RegionId
from memwal_core.manifest import FlushedGeneration
from memwal_core.memtable import MemTable
from memwal_core.storage.layout import LANCE_WAL_SUFFIX
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import WalCodec
from memwal_core.writer.layout import TableLayout


@dataclass(frozen=True, slots=True)
class RegionFlusher:
    """Plans and writes flushes of one region.

    Attributes:
        store: The table's store.
        region_id: The region.
        codec: The codec of its WAL.
        layout: Shape of the rows.
        false_positive_rate: Of the key filter.
    """

    store: ObjectStore
    region_id: RegionId
    codec: WalCodec
    layout: TableLayout
    false_positive_rate: float

    def plan(self, memtable: MemTable, directory: str) -> FlushPlan:
        """Plan the flush of a stored MemTable into a fresh directory."""
        return plan_flush(memtable, self.region_id, directory, self.layout.key)

    def write(self, planned: FlushPlan, memtable: MemTable) -> FlushedGeneration:
        """Create the directory; see ``write_flushed_memtable`` for errors."""
        layout = self.layout
        # Only Lance files can be shared; rows of another codec are copied, each key's newest.
        rows = None if self.codec.suffix == LANCE_WAL_SUFFIX else newest_rows(memtable, layout.key)
        keys = memtable.to_table(layout.key) if rows is None else rows

        def complete(_: lance.LanceDataset) -> None:
            write_companions(self.store, planned, keys, layout.key, self.false_positive_rate)

        if rows is None:
            return write_flushed_memtable(self.store, planned, layout.fields, self.codec, complete)
        return rewrite_memtable(self.store, planned, layout.fields, rows, complete)
