"""Claiming a region and putting a writer's parts together."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.flush import FlushPlan, newest_rows, plan_flush, rewrite_memtable, write_flushed_memtable
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import FlushedGeneration, ManifestStore, RegionManifest, RegionStatus, claim
from memwal_core.memtable import MemTable, MemTableQueue
from memwal_core.settings import Settings
from memwal_core.storage.layout import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX
from memwal_core.wal import WalAppender, WalCodec, codec_for_suffix, read_tail
from memwal_core.writer.flush_queue import FlushQueue
from memwal_core.writer.group_commit import GroupCommit
from memwal_core.writer.layout import TableLayout
from memwal_core.writer.ownership import Ownership
from memwal_core.writer.replay import replay
from memwal_core.writer.state import RegionState
from memwal_core.writer.stats import WriterMeters

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterParts:
    """What a region writer is made of, the region claimed and replayed.

    Attributes:
        layout: Shape of the rows.
        store_kind: Where the WAL lives.
        state: Shared by all threads.
        wal: Writes WAL entries.
        flushes: Flushes full MemTables.
    """

    layout: TableLayout
    store_kind: str
    state: RegionState
    wal: GroupCommit
    flushes: FlushQueue


def open_parts(table: BaseTable, region_id: RegionId, settings: Settings, clock: Clock, ids: IdSource) -> WriterParts:
    """Claim a region and replay its unflushed rows.

    Raises:
        InvalidRequestError: The table or region cannot be written by this writer.
        FencedError: A newer writer claimed the region meanwhile.
        CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
        CommitUnknownError: Storage did not answer while the claim was made known; open again.
    """
    state = table.state()
    table.require_writable(state)
    layout = TableLayout.of(table, state)
    manifests = ManifestStore(table.store, ids, settings=settings.storage)
    codec = codec_of_region(manifests.load(region_id), state.field_ids)
    shared = _claimed(table, manifests, region_id, layout, codec, settings, clock)
    appender = WalAppender(
        table.store,
        region_id,
        codec,
        writer_epoch=shared.ownership.epoch,
        last_wal_id=shared.queue.active.last_wal_id or 0,
        storage_version=layout.storage_version,
        ids=ids,
    )
    wal = GroupCommit(shared, appender, clock)
    if codec.writes_fences:
        wal.write_fence()

    def plan(memtable: MemTable, directory: str) -> FlushPlan:
        return plan_flush(memtable, region_id, directory, layout.key)

    def write(planned: FlushPlan, memtable: MemTable) -> FlushedGeneration:
        if codec.suffix == LANCE_WAL_SUFFIX:
            return write_flushed_memtable(table.store, planned, layout.fields, codec)
        rows = newest_rows(memtable, layout.key)
        return rewrite_memtable(table.store, planned, layout.fields, rows, layout.storage_version)

    flushes = FlushQueue(shared, wal, manifests, plan=plan, write=write, settings=settings.writer, clock=clock, ids=ids)
    return WriterParts(layout, table.store.kind, shared, wal, flushes)


def _claimed(  # noqa: PLR0913  (one caller)
    table: BaseTable,
    manifests: ManifestStore,
    region_id: RegionId,
    layout: TableLayout,
    codec: WalCodec,
    settings: Settings,
    clock: Clock,
) -> RegionState:
    started = clock.monotonic()
    manifest = claim(manifests, region_id)
    ownership = Ownership(manifests, manifest, started, settings.writer.epoch_check_interval_s, clock)
    memtable = MemTable(manifest.current_generation, layout.memtable_schema, manifest.replay_after_wal_id, clock.now())
    entries = read_tail(
        table.store,
        region_id,
        codec,
        manifest.replay_after_wal_id,
        manifest.wal_id_last_seen,
        settings.storage.concurrency,
    )
    replay(entries, memtable, ownership)
    meters = WriterMeters(str(region_id))
    meters.replayed_entries = len(entries)
    meters.recovery_s = clock.monotonic() - started
    _log.info(
        "region claimed [region_id=%s, writer_epoch=%d, replayed_entries=%d, replayed_rows=%d]",
        region_id,
        ownership.epoch,
        len(entries),
        memtable.num_rows,
    )
    return RegionState(ownership, manifest, MemTableQueue(memtable), layout.memtable_schema, meters)


def codec_of_region(manifest: RegionManifest, field_ids: Mapping[str, int]) -> WalCodec:
    """Return the codec that a region was created with.

    A SEALED region refuses pylance's writer, so its WAL is ours alone; in an ACTIVE one both take turns.
    """
    is_ours = manifest.status is RegionStatus.SEALED
    return codec_for_suffix(LANCE_WAL_SUFFIX if is_ours else ARROW_WAL_SUFFIX, field_ids)
