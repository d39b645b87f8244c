"""Claiming a region and putting a writer's parts together."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.errors import InvalidRequestError
from memwal_core.flush import FlushPlan, plan_flush, write_flushed_memtable
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import FlushedGeneration, ManifestStore, RegionManifest, RegionStatus, claim
from memwal_core.memtable import MemTable, MemTableQueue
from memwal_core.settings import Settings
from memwal_core.wal import LANCE_CODEC, WalAppender, WalCodec, read_tail
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
    """
    state = table.state()
    table.require_writable(state)
    layout = TableLayout.of(table, state)
    manifests = ManifestStore(table.store, ids, settings=settings.storage)
    codec = _codec_of(manifests.load(region_id))
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

    def plan(memtable: MemTable, directory: str) -> FlushPlan:
        return plan_flush(memtable, region_id, directory, layout.key)

    def write(planned: FlushPlan, memtable: MemTable) -> FlushedGeneration:
        return write_flushed_memtable(table.store, planned, layout.fields, codec)

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


def _codec_of(manifest: RegionManifest) -> WalCodec:
    if manifest.status is not RegionStatus.SEALED:
        raise InvalidRequestError(
            "this region belongs to pylance's own writer (its WAL has the arrow codec)",
            remedy="write it with pylance's mem_wal_writer, or create a region of your own",
            region_id=str(manifest.region_id),
            status=manifest.status.name,
        )
    return LANCE_CODEC
