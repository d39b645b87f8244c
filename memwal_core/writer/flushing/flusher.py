"""How the MemTables of one region become flushed MemTables: by the region's codec and the table's layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import lance

from memwal_core.base_table import BaseTable
from memwal_core.base_table.indexes.recipes import IndexRecipe, index_recipes
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.flushed.write import (
    FlushPlan,
    build_maintained_indexes,
    plan_flush,
    write_flushed_memtable,
    write_sidecars,
)
from memwal_core.format.memwal_index.codec import maintains_all_indexes
from memwal_core.format.paths import LANCE_WAL_SUFFIX
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable, StoredEntry
from memwal_core.region import FlushedGeneration
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.wal import WalCodec, apparent_damage_of_entry
from memwal_core.writer.layout import TableLayout


@dataclass(frozen=True, slots=True)
class RegionFlusher:
    """Plans and writes flushes of one region.

    Attributes:
        recipes: Reads how the maintained indexes are built; called at each flush.
        pack_below_bytes: Neighbouring WAL entries smaller than this become one file.
        failpoints: Hit before and after each call of Lance.
    """

    store: ObjectStore
    region_id: RegionId
    codec: WalCodec
    layout: TableLayout
    recipes: Callable[[], Sequence[IndexRecipe]]
    false_positive_rate: float
    pack_below_bytes: int
    failpoints: Failpoints = NO_FAILPOINTS

    def plan(self, memtable: MemTable, directory: str) -> FlushPlan:
        """Plan the flush of a stored MemTable into a fresh directory."""
        return plan_flush(
            memtable,
            self.region_id,
            directory,
            self.layout.key,
            can_share=self._can_share,
            pack_below_bytes=self.pack_below_bytes,
        )

    def write(self, planned: FlushPlan, memtable: MemTable) -> FlushedGeneration:
        """Create the directory; see ``write_flushed_memtable`` for errors."""
        layout = self.layout

        def complete(table: lance.LanceDataset) -> None:
            build_maintained_indexes(table, self.recipes(), self.failpoints)
            write_sidecars(self.store, planned, layout.key, self.false_positive_rate, self.failpoints)

        return write_flushed_memtable(
            self.store, planned, layout.fields, self.codec.suffix, memtable, complete, self.failpoints
        )

    def _can_share(self, entry: StoredEntry) -> bool:
        """Return whether a WAL entry can be a data file: a Lance table has files of one version, all of them whole."""
        if self.codec.suffix != LANCE_WAL_SUFFIX or entry.file_version not in (None, self.layout.fields.file_version):
            return False
        # What a disk has lost of an entry is in memory still.
        return self.store.kind is not StoreKind.LOCAL or not apparent_damage_of_entry(
            self.store, self.region_id, entry.wal_id, self.codec.suffix, entry.size_bytes
        )


class MaintainedIndexes:
    """Reads the recipes of the indexes that MemTables must have, and caches them."""

    def __init__(self, table: BaseTable) -> None:
        self._table = table
        self._known: tuple[tuple[object, ...], tuple[IndexRecipe, ...]] | None = None

    def recipes(self) -> tuple[IndexRecipe, ...]:
        """Return the recipes as of the base table's newest version."""
        state = self._table.state()
        details = self._table.require_mem_wal(state)
        everything = maintains_all_indexes(details)
        if not everything and not details.maintained_indexes:
            return ()
        # A recipe never changes during the life of an index; these facts show whether it is the same index.
        facts = (everything, details.maintained_indexes, *self._table.indexes(state.version))
        if self._known is None or self._known[0] != facts:
            names = None if everything else details.maintained_indexes
            self._known = (facts, index_recipes(self._table, state.version, names))
        return self._known[1]
