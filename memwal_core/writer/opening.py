"""Claiming a region and putting a writer's parts together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memwal_core.base_table import BaseTable
from memwal_core.base_table.index_recipes import IndexRecipe
from memwal_core.clock import Clock
from memwal_core.flush import Reach, nowhere
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import ManifestStore, RegionManifest, RegionStatus, claim
from memwal_core.memtable import MemTable, MemTableQueue
from memwal_core.settings import Settings
from memwal_core.storage.layout import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, wal_directory
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import WalAppender, WalCodec, codec_for_suffix, read_tail
from memwal_core.writer.flush_queue import FlushQueue
from memwal_core.writer.flushing import MaintainedIndexes, RegionFlusher
from memwal_core.writer.group_commit import GroupCommit
from memwal_core.writer.layout import TableLayout, layout_of_rows
from memwal_core.writer.ownership import Ownership
from memwal_core.writer.replay import leading_run, replay
from memwal_core.writer.state import RegionState
from memwal_core.writer.stats import WriterMeters

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterParts:
    """What a region writer is made of, the region claimed and replayed.

    Attributes:
        layout: Shape of the rows.
        layout_is_current: Whether it is that of the table's newest version, and all unflushed rows have it.
        store: The table's store.
        state: Shared by all threads.
        wal: Writes WAL entries.
        flushes: Flushes full MemTables.
        recipes: Reads how maintained indexes are built.
    """

    layout: TableLayout
    layout_is_current: bool
    store: ObjectStore
    state: RegionState
    wal: GroupCommit
    flushes: FlushQueue
    recipes: Callable[[], Sequence[IndexRecipe]]


def open_parts(
    table: BaseTable, region_id: RegionId, settings: Settings, clock: Clock, ids: IdSource, reach: Reach = nowhere
) -> WriterParts:
    """Claim a region and replay its unflushed rows.

    Raises:
        InvalidRequestError: The table or region cannot be written by this writer.
        FencedError: A newer writer claimed the region meanwhile.
        ConflictError: A predecessor wrote late, in an older schema; open again.
        CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
        CommitUnknownError: Storage did not answer while the claim was made known; open again.
        UnavailableError: Storage failed; open again.
    """
    state = table.state()
    table.require_writable(state)
    current = TableLayout.of(table, state)
    manifests = ManifestStore(table.store, ids, settings=settings.storage)
    codec = codec_of_region(manifests.load(region_id), state.field_ids)
    started = clock.monotonic()
    manifest = claim(manifests, region_id)
    ownership = Ownership(manifests, manifest, started, settings.writer.epoch_check_interval_s, clock)
    entries = read_tail(
        table.store,
        region_id,
        codec,
        manifest.replay_after_wal_id,
        manifest.wal_id_last_seen,
        settings.storage.concurrency,
        current.entry_shape,
    )
    if entries:
        # A predecessor may have been killed between naming an entry and syncing the name. What is flushed, and
        # every hint, refers to these entries from now on, so they must not vanish in a power failure.
        table.store.sync_directory(wal_directory(region_id))
    # Rows of a schema that the table had before are flushed in that schema first, see RegionWriter.open.
    leading = leading_run(entries)
    schemas = [entry.rows.schema for entry in leading if not entry.is_fence]
    layout = layout_of_rows(table, current, schemas[0]) if schemas else current
    memtable = MemTable(manifest.current_generation, layout.memtable_schema, manifest.replay_after_wal_id, clock.now())
    replay(leading, memtable, layout.entry_shape, ownership)
    is_complete = len(leading) == len(entries)
    meters = WriterMeters(str(region_id))
    meters.replayed_entries = len(leading)
    meters.recovery_s = clock.monotonic() - started
    _log.info(
        "region claimed [region_id=%s, writer_epoch=%d, replayed_entries=%d, replayed_rows=%d]",
        region_id,
        ownership.epoch,
        len(leading),
        memtable.num_rows,
    )
    shared = RegionState(ownership, manifest, MemTableQueue(memtable), layout.entry_shape, meters)
    appender = WalAppender(
        table.store,
        region_id,
        codec,
        writer_epoch=ownership.epoch,
        last_wal_id=memtable.last_wal_id or 0,
        storage_version=layout.storage_version,
        ids=ids,
    )
    wal = GroupCommit(shared, appender, clock)
    if codec.writes_fences and is_complete:  # Who only flushes the first of several schemas writes no entry.
        wal.write_fence()
    recipes = MaintainedIndexes(table).recipes
    flusher = RegionFlusher(
        table.store,
        region_id,
        codec,
        layout,
        recipes,
        settings.writer.key_filter_false_positives,
        reach,
    )
    flushes = FlushQueue(
        shared,
        wal,
        manifests,
        plan=flusher.plan,
        write=flusher.write,
        settings=settings.writer,
        clock=clock,
        ids=ids,
    )
    return WriterParts(layout, layout is current and is_complete, table.store, shared, wal, flushes, recipes)


def codec_of_region(manifest: RegionManifest, field_ids: Mapping[str, int]) -> WalCodec:
    """Return the codec that a region was created with.

    A SEALED region refuses pylance's writer, so its WAL is ours alone; in an ACTIVE one both take turns.
    """
    is_ours = manifest.status is RegionStatus.SEALED
    return codec_for_suffix(LANCE_WAL_SUFFIX if is_ours else ARROW_WAL_SUFFIX, field_ids)
