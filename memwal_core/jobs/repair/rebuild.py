"""Writing the directory of a flushed MemTable anew, from rows that were found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.deduplicate import last_row_per_key
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.flushed.write import (
    FlushPlan,
    build_maintained_indexes,
    write_flushed_memtable,
    write_sidecars,
)
from memwal_core.flushed.write.flush_plan import PlannedFragment
from memwal_core.format.paths import LANCE_WAL_SUFFIX, generation_directory_name
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable
from memwal_core.native.casting import no_rows
from memwal_core.region import FlushedGeneration
from memwal_core.writer.flushing.flusher import MaintainedIndexes
from memwal_core.writer.layout import TableLayout


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Writes directories of flushed MemTables that no manifest records yet."""

    table: BaseTable
    failpoints: Failpoints = NO_FAILPOINTS

    def write(
        self, region_id: RegionId, generation: int, rows: pa.Table | None, layout: TableLayout
    ) -> FlushedGeneration:
        """Write a fresh directory that is durable and depends on no other file; nothing refers to it yet.

        Args:
            region_id: The region.
            generation: The generation.
            rows: In write order, in the layout's MemTable schema, tombstones included; None or no rows makes a flushed
                MemTable that holds nothing.
            layout: Of the rows.

        Returns:
            The record for the region manifest.

        Raises:
            UnavailableError: Storage failed; what was written is left to garbage collection.
        """
        found = rows if rows is not None else no_rows(layout.memtable_schema)
        newest = _newest(found, layout.key).combine_chunks()
        memtable = MemTable(generation, layout.memtable_schema, 0, self.table.clock.now())
        memtable.add(newest)
        plan = FlushPlan(
            region_id=region_id,
            generation=generation,
            directory=generation_directory_name(self.table.ids.directory_prefix(), generation),
            entries=(),
            pieces=(PlannedFragment(0, np.zeros(newest.num_rows, dtype=bool), None),) if newest.num_rows else (),
            keys=newest.select(list(layout.key)),
            superseded=0,
            key_order=None,
            in_memory_bytes=memtable.size_bytes,
        )
        rate = self.table.settings.writer.key_filter_false_positives

        def complete(dataset: lance.LanceDataset) -> None:
            if newest.num_rows:
                build_maintained_indexes(dataset, MaintainedIndexes(self.table).recipes(), self.failpoints)
            if layout.key:
                write_sidecars(self.table.store, plan, layout.key, rate, self.failpoints)

        # No file is shared with the WAL, so its suffix does not matter.
        return write_flushed_memtable(
            self.table.store, plan, layout.fields, LANCE_WAL_SUFFIX, memtable, complete, self.failpoints
        )


def _newest(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the last row of each key; without a key every row counts."""
    return rows.take(pa.array(last_row_per_key(rows.select(list(key)), key))) if key else rows
