"""Claiming a region and assembling its writer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from memwal_core.base_table import BaseTable
from memwal_core.base_table.indexes.recipes import IndexRecipe
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.format.paths import wal_directory, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable, MemTableQueue
from memwal_core.region import ManifestStore, RegionManifest, claim
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal import EntryShape, WalAppender, WalCodec, WalEntry, codec_of_region, read_tail
from memwal_core.writer.claim.ownership import Ownership
from memwal_core.writer.claim.takeover import note_release
from memwal_core.writer.flushing.flush_queue import FlushQueue
from memwal_core.writer.flushing.flusher import MaintainedIndexes, RegionFlusher
from memwal_core.writer.layout import TableLayout, layout_of_rows
from memwal_core.writer.log.group_commit import GroupCommit
from memwal_core.writer.log.replay import leading_run, replay
from memwal_core.writer.state import RegionState
from memwal_core.writer.stats import WriterMeters

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The components of a region writer after claim and replay.

    Attributes:
        layout_is_current: Whether it is that of the table's newest version, and all unflushed rows have it.
    """

    layout: TableLayout
    layout_is_current: bool
    table: BaseTable
    state: RegionState
    wal: GroupCommit
    flushes: FlushQueue
    recipes: Callable[[], Sequence[IndexRecipe]]


@dataclass(frozen=True, slots=True)
class _Replayed:
    """A region that was claimed, with its unflushed rows of one layout.

    Attributes:
        is_complete: Whether there are no rows of other layouts behind them.
    """

    state: RegionState
    layout: TableLayout
    is_complete: bool


def open_context(
    table: BaseTable,
    region_id: RegionId,
    failpoints: Failpoints = NO_FAILPOINTS,
    expected_epoch: int | None = None,
    on_claim: Callable[[int], object] = lambda _epoch: None,
) -> WriterContext:
    """Claim a region and replay its unflushed rows; arguments and errors as for ``RegionWriter.open``.

    A claim after which something fails is given back, or nobody could write the region before it seemed dead.
    """
    state = table.state()
    table.require_writable(state)
    current = TableLayout.of(state)
    manifests = ManifestStore(table.store, table.ids, settings=table.settings.storage)
    started = table.clock.monotonic()
    manifest = claim(manifests, region_id, expected_epoch=expected_epoch)
    epoch = manifest.writer_epoch
    on_claim(epoch)
    with ExitStack() as unless_opened:
        unless_opened.callback(
            note_release, table.store, region_id, epoch, lambda: manifests.load(region_id).writer_epoch == epoch
        )
        ownership = Ownership(
            manifests,
            manifest,
            started,
            table.settings.writer.epoch_check_interval_s,
            table.clock,
            in_background=table.settings.writer.background_flush,
        )
        codec = codec_of_region(manifest, state.column_ids, state.schema.metadata)
        replayed = _replayed(table, manifest, ownership, codec, current)
        context = _assembled(table, manifests, codec, current, replayed, failpoints)
        unless_opened.pop_all()
    context.state.meters.recovery_s = table.clock.monotonic() - started
    return context


def _replayed(
    table: BaseTable, manifest: RegionManifest, ownership: Ownership, codec: WalCodec, current: TableLayout
) -> _Replayed:
    region_id = manifest.region_id
    entries = _read_unflushed(table.store, manifest, codec, table.settings.storage.concurrency, current.entry_shape)
    # Rows of an earlier schema of the table are flushed in that schema first, see RegionWriter.open.
    leading = leading_run(entries)
    schemas = [entry.rows.schema for entry in leading if not entry.is_fence]
    layout = layout_of_rows(table, current, schemas[0]) if schemas else current
    written = _first_written(table.store, region_id, codec, leading, table.clock.now())
    memtable = MemTable(manifest.current_generation, layout.memtable_schema, manifest.replay_after_wal_id, written)
    replay(leading, memtable, layout.entry_shape, ownership)
    meters = WriterMeters(str(region_id))
    meters.replayed_entries = len(leading)
    _log.info(
        "region claimed [region_id=%s, writer_epoch=%d, replayed_entries=%d, replayed_rows=%d]",
        region_id,
        ownership.epoch,
        len(leading),
        memtable.num_rows,
    )
    state = RegionState(ownership, manifest, MemTableQueue(memtable), layout.entry_shape, meters)
    return _Replayed(state, layout, is_complete=len(leading) == len(entries))


def _assembled(
    table: BaseTable,
    manifests: ManifestStore,
    codec: WalCodec,
    current: TableLayout,
    replayed: _Replayed,
    failpoints: Failpoints,
) -> WriterContext:
    state, layout, is_complete = replayed.state, replayed.layout, replayed.is_complete
    region_id, settings = state.ownership.region_id, table.settings.writer
    appender = WalAppender(
        table.store,
        region_id,
        codec,
        writer_epoch=state.ownership.epoch,
        last_wal_id=state.queue.active.last_wal_id or 0,
        storage_version=layout.storage_version,
        ids=table.ids,
    )
    wal = GroupCommit(state, appender, table.clock)
    if codec.writes_fences and is_complete:  # A writer that only flushes the first of several schemas writes no entry.
        wal.write_fence()
    recipes = MaintainedIndexes(table).recipes
    flusher = RegionFlusher(
        table.store,
        region_id,
        codec,
        layout,
        recipes,
        settings.key_filter_false_positives,
        settings.pack_below_bytes,
        failpoints,
    )
    flushes = FlushQueue(
        state,
        wal,
        manifests,
        plan=flusher.plan,
        write=flusher.write,
        settings=settings,
        clock=table.clock,
        ids=table.ids,
    )
    return WriterContext(layout, layout is current and is_complete, table, state, wal, flushes, recipes)


def _read_unflushed(
    store: ObjectStore, manifest: RegionManifest, codec: WalCodec, concurrency: int, shape: EntryShape
) -> list[WalEntry]:
    replayed, seen = manifest.replay_after_wal_id, manifest.wal_id_last_seen
    entries = read_tail(store, manifest.region_id, codec, replayed, seen, concurrency, shape)
    if entries:
        # A predecessor may have been killed between naming an entry and syncing the name. Flushed MemTables and
        # hints refer to these entries from now on, so a power failure must not remove them.
        store.sync_directory(wal_directory(manifest.region_id))
    return entries


def _first_written(
    store: ObjectStore, region_id: RegionId, codec: WalCodec, entries: Sequence[WalEntry], now: datetime
) -> datetime:
    """Return when the oldest rows to replay were written, ``now`` without any.

    Rows keep their age when their region changes hands; otherwise those of a region that is often opened
    and closed would never be old enough for a flush.
    """
    first = next((entry.wal_id for entry in entries if not entry.is_fence), None)
    found = None if first is None else store.head(wal_entry_path(region_id, first, codec.suffix))
    return now if found is None else min(now, found.modified)
