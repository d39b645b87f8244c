"""The writer of one region: claim, replay, put, flush, close."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.errors import FencedError, MemwalError
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.ids import RegionId
from memwal_core.memtable import Key, KeyIndexKind, MemTable, key_capacity, with_tombstones
from memwal_core.native.casting import owned, trimmed
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.wal import EntryShape
from memwal_core.writer.admission.admission import Admission
from memwal_core.writer.admission.memory import MemoryBudget
from memwal_core.writer.admission.storable import require_fits_entry, require_storable
from memwal_core.writer.admission.validate import conform, tombstones
from memwal_core.writer.claim.opening import WriterContext, open_context
from memwal_core.writer.claim.takeover import note_release
from memwal_core.writer.flushing.flush_queue import RETRYABLE
from memwal_core.writer.flushing.rotation import RotationReason
from memwal_core.writer.flushing.scheduler import BackgroundScheduler
from memwal_core.writer.log.group_commit import PutReceipt
from memwal_core.writer.query.indexes import MemTableIndexes
from memwal_core.writer.query.search import MemTableSearch
from memwal_core.writer.state import RegionState
from memwal_core.writer.stats import WriterStats

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region's manifest and MemTables that fit together: no generation is missing or in both.

    Attributes:
        manifest: As this writer last recorded it.
        memtables: Generations that it does not list, oldest first, the active one last.
        shape: The columns of their rows.
    """

    manifest: RegionManifest
    memtables: tuple[MemTable, ...]
    shape: EntryShape


class RegionWriter:
    """The one active writer of a region. Safe to call from several threads; use ``open``.

    A put is acknowledged only while the writer provably owns the region: the epoch was verified no longer
    than ``epoch_check_interval_s`` ago, measured at the moment of acknowledgement. Together with the rule
    that younger WAL entries are never collected, this keeps a stalled writer that was replaced from
    acknowledging rows that no successor will replay.

    Rows are readable in ``view`` as soon as a put has taken them. ``sync`` makes them durable, ``flush``
    makes them part of a flushed MemTable, ``close`` makes them durable and releases the region.
    """

    @classmethod
    def open(
        cls,
        table: BaseTable,
        region_id: RegionId,
        *,
        memory: MemoryBudget | None = None,
        failpoints: Failpoints = NO_FAILPOINTS,
        expected_epoch: int | None = None,
        on_claim: Callable[[int], object] = lambda _epoch: None,
    ) -> Self:
        """Claim a region, which fences its present writer, and replay its unflushed rows.

        Args:
            table: The base table, whose settings the writer has; it needs a primary key and a MemWAL index.
            region_id: The region to own.
            memory: A bound that several writers share; none if None.
            failpoints: Hit before and after each call of Lance in a flush; for tests.
            expected_epoch: Claim only from the writer of this epoch; from any if None.
            on_claim: Is told the epoch once the region is claimed, before anything else can fail.

        Raises:
            InvalidRequestError: The table or region cannot be written by this writer.
            FencedError: A newer writer claimed the region meanwhile.
            ConflictError: A predecessor wrote late, in an older schema, or the epoch is another one; open again.
            CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
            CommitUnknownError: Storage did not answer while the claim was made known; open again.
        """
        context = open_context(table, region_id, failpoints, expected_epoch, on_claim)
        writer = cls(context, memory)
        if not writer._layout_is_current:
            # The table's schema has changed since the last writer crashed: its rows keep their schema.
            with writer:
                writer.flush()
            return cls.open(
                table,
                region_id,
                memory=memory,
                failpoints=failpoints,
                expected_epoch=None if expected_epoch is None else writer.writer_epoch,
                on_claim=on_claim,
            )
        if writer._scheduler.rotate_if_due():
            writer._scheduler.flush_soon()
        return writer

    def __init__(self, context: WriterContext, memory: MemoryBudget | None) -> None:
        settings, clock = context.table.settings.writer, context.table.clock
        self._layout = context.layout
        self._layout_is_current = context.layout_is_current
        self._store = context.table.store
        self._state = context.state
        self._wal = context.wal
        self._flushes = context.flushes
        self._settings = settings
        self._indexes = MemTableIndexes(
            context.layout.key,
            KeyIndexKind(settings.memtable_index),
            key_capacity(settings.max_memtable_bytes, settings.max_memtable_rows),
            settings.key_filter_false_positives,
        )
        self._search = MemTableSearch(
            _memtables_of(context.state), context.layout, context.recipes, is_indexed=settings.indexed_write
        )
        self._scheduler = BackgroundScheduler(context.state, context.wal, context.flushes, settings, clock)
        self._admission = Admission(
            context.state,
            context.wal,
            context.flushes,
            self._scheduler,
            settings=settings,
            clock=clock,
            memory=memory,
        )
        self._closing = threading.Lock()
        self._is_closed = False

    @property
    def region_id(self) -> RegionId:
        """The region that this writer owns."""
        return self._state.ownership.region_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that was claimed."""
        return self._state.ownership.epoch

    @property
    def is_closed(self) -> bool:
        """Whether a close has ended its threads."""
        return self._is_closed

    @property
    def memtable(self) -> MemTable:
        """The active MemTable."""
        return self._state.queue.active

    def view(self) -> RegionView:
        """Return the manifest and all MemTables of one moment, for readers in the same process."""
        with self._state.lock:
            return RegionView(self._state.manifest, self._state.queue.all, self._state.shape)

    def lookup(self, keys: object) -> pa.Table:
        """Return the newest row of each key in the MemTables, tombstones included.

        Rows that no key index covers yet are indexed first, so the answer is exact.

        Args:
            keys: The primary key's columns in any order; must not be NULL.

        Returns:
            Rows in the MemTable schema; keys that are in no MemTable are left out.

        Raises:
            InvalidRequestError: The keys do not fit.
        """
        key_schema = pa.schema([self._layout.schema.field(name) for name in self._layout.key])
        return self._indexes.lookup(self.view().memtables, conform(keys, key_schema, self._layout.key))

    def scan(self, low: Key | None = None, high: Key | None = None) -> pa.Table:
        """Return the newest row of each key of a range in the MemTables, in key order, tombstones included.

        Args:
            low: Smallest key, included; a tuple for composite keys; None for no bound.
            high: Largest key, included.

        Raises:
            InvalidRequestError: The bounds do not compare with keys.
        """
        return self._indexes.scan(self.view().memtables, low, high)

    @property
    def search(self) -> MemTableSearch:
        """Queries over the MemTables by condition, by vector and by words."""
        return self._search

    def put(self, rows: object) -> PutReceipt:
        """Write rows: new keys are inserted, existing ones replaced, the last row of a key wins.

        Args:
            rows: The base table's columns in any order; keys must not be NULL.

        Returns:
            Where the rows are. With ``durable_write`` they are in the WAL.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            BackpressureError: The flush queue stayed full; nothing was written.
            FencedError: Another writer owns the region. The rows are not acknowledged.
            ConflictError: A predecessor wrote late, in an older schema. Open the region again.
            CommitUnknownError: Storage did not answer, or refused; the rows stay pending and may be durable.
                Put them again, or call ``sync``.
        """
        return self.write(self.prepared(rows))

    def prepared(self, rows: object) -> pa.Table:
        """Return rows as ``write`` takes them, after every check that a put makes of its rows; nothing is written.

        They share no memory with the batch, which its owner may change or drop.

        Raises:
            InvalidRequestError: The batch does not fit.
        """
        layout = self._layout
        conformed = trimmed(conform(rows, layout.schema, layout.key))
        require_fits_entry(conformed)
        batch = with_tombstones(owned(conformed), layout.memtable_schema, deleted=False)
        require_storable(batch, layout.storage_version)
        return batch

    def prepared_deletes(self, keys: object) -> pa.Table:
        """Return the tombstones of keys as ``write`` takes them; nothing is written.

        Raises:
            InvalidRequestError: As for ``delete``.
        """
        layout = self._layout
        batch = tombstones(keys, layout.schema, layout.key, layout.memtable_schema)
        require_fits_entry(batch)
        require_storable(batch, layout.storage_version)
        return batch

    def put_async(self, rows: object) -> Future[PutReceipt]:
        """Write rows and return at once; they are readable now, and durable when the future says so.

        Args:
            rows: As for ``put``.

        Returns:
            A future that is settled exactly once, with the receipt or with an error of ``put``. Puts whose
            futures are open together share WAL entries. With ``background_flush`` the writer's thread writes
            them now; without, the next durable put, ``sync``, ``flush`` or ``close`` does.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            BackpressureError: The flush queue stayed full; nothing was written.
            FencedError: Another writer owns the region; nothing was written.
        """
        future = self._admission.accept(self.prepared(rows), is_awaited=True)
        self._scheduler.write_wal_soon()
        return future

    def delete(self, keys: object) -> PutReceipt:
        """Delete rows by key; missing keys are not an error.

        Args:
            keys: The primary key's columns in any order; must not be NULL.

        Returns:
            Where the tombstones are, as for ``put``.

        Raises:
            InvalidRequestError: The keys do not fit, or the table has a value column that does not allow NULL,
                so that it cannot have a tombstone; nothing was written.
            BackpressureError: As for ``put``.
            FencedError: As for ``put``.
            ConflictError: As for ``put``.
            CommitUnknownError: As for ``put``.
        """
        return self.write(self.prepared_deletes(keys))

    def sync(self) -> int:
        """Make all rows put so far durable.

        Returns:
            The last WAL entry; 0 if the region has none.

        Raises:
            FencedError: Another writer owns the region; rows since the last sync are not acknowledged.
            CommitUnknownError: Storage did not answer; call again.
        """
        self._admission.require_open()
        self._wal.write_pending()
        return self._wal.last_wal_id

    def rotate(self) -> bool:
        """Freeze the active MemTable and queue it for its flush, without waiting for that.

        Returns:
            Whether it was frozen: there were rows, and the queue had room.

        Raises:
            FencedError: Another writer owns the region.
            InvalidRequestError: The writer is closed.
        """
        with self._state.lock:
            self._admission.require_open()
            if not self._state.queue.active.num_rows or self._flushes.is_full():
                return False
            self._scheduler.rotate(RotationReason.REQUEST)
        if self._settings.background_flush:
            self._scheduler.flush_soon()
        return True

    def flush(self) -> FlushedGeneration | None:
        """Turn all MemTables into flushed MemTables, ready to be merged, and wait for that.

        Returns:
            The newest recorded generation; None if there was nothing to flush.

        Raises:
            FencedError: Another writer owns the region and will replay the rows.
            UnavailableError: Storage failed; the rows stay readable and durable. Call again.
            StoreRefusedError: Storage refused; as before. Correct permissions and credentials, then call again.
            CommitUnknownError: Storage did not answer; call again.
            ConflictError: Other processes kept changing the region's manifest; call again.
        """
        self._admission.require_open()
        self._wal.write_pending()
        with self._state.lock:
            if self._state.queue.active.num_rows:
                self._scheduler.rotate(RotationReason.REQUEST)
            waiting = self._state.queue.waiting
        return self._flushes.flush_through(waiting[-1]) if waiting else None

    def write_fence(self) -> None:
        """Take the next WAL position without rows: no writer with an older claim writes anything from then on.

        Without it, one that was fenced may still write rows, though not acknowledge them, until it notices.

        Raises:
            FencedError: Another writer owns the region.
            ConflictError: A predecessor wrote late, in an older schema. Open the region again.
            CommitUnknownError: Storage did not answer. Open the region again.
        """
        self._admission.require_open()
        self._wal.write_fence()

    def run_due(self) -> None:
        """Do now what the background threads would do: due WAL writes, rotations and flushes.

        For callers that switch ``background_flush`` off and call this from a loop of their own.

        Raises:
            FencedError: Another writer owns the region.
            UnavailableError: Storage failed; rows stay where they are. Call again.
            CommitUnknownError: Storage did not answer; call again.
            ConflictError: Other processes kept changing the region's manifest; call again.
        """
        self._admission.require_open()
        self._scheduler.run_due()

    def stats(self) -> WriterStats:
        """Return counters and gauges of this moment."""
        with self._state.lock:
            queue, meters = self._state.queue, self._state.meters
            pending = queue.unstored()
            return WriterStats(
                store_kind=self._store.kind,
                writer_epoch=self.writer_epoch,
                counts=meters.counts(),
                rotations=meters.rotations(),
                active_generation=queue.active.generation,
                active_rows=queue.active.num_rows,
                active_bytes=queue.active.size_bytes,
                pending_puts=sum(len(fragments) for _, fragments in pending),
                pending_bytes=sum(memtable.pending_bytes for memtable, _ in pending),
                wal_bytes=queue.active.wal_bytes,
                last_wal_id=self._wal.last_wal_id,
                wal_entries_since_flush=self._wal.last_wal_id - self._state.manifest.replay_after_wal_id,
                queued=len(queue.waiting),
                queued_bytes=queue.waiting_bytes,
                flushing=self._flushes.is_running,
                oldest_queued_s=self._flushes.oldest_age_s(),
                is_stalled=self._flushes.is_stalled(),
                last_flush_s=meters.last_flush_s,
                last_flush_error=meters.last_flush_error,
                replayed_entries=meters.replayed_entries,
                recovery_s=meters.recovery_s,
                discarded=meters.discarded(),
            )

    def close(self) -> None:
        """Make pending rows durable, flush what is due, end the threads and release the region.

        Due are full MemTables, and rows that have waited for ``max_memtable_age_s``, under earlier writers
        included. Younger rows stay in the WAL, as do those whose flush fails; the next writer or the job
        ``flush`` flushes them. Skipping it loses nothing that was acknowledged as durable. Closing twice is
        harmless, and tells of lost rows twice; the end of a ``with`` does not repeat what a close has told. A close
        that was interrupted is done by the next, and a fork of the writer's process closes nothing.

        Raises:
            FencedError: Another writer owns the region; rows since the last sync are not acknowledged.
            CommitUnknownError: Storage did not answer; call again.
            MemwalError: Another reason why the writer had to stop; it is closed. Rows since the last sync may be lost:
                put them again.
        """
        if not self._state.ownership.process.is_this:
            return
        with self._closing:  # No close returns while that of another thread is at work.
            if self._is_closed:
                self._require_stored()
                return
            with self._state.lock:
                self._state.is_closing = True
                self._state.changed.notify_all()
            try:
                if self._state.ownership.ended is None:
                    self._wal.write_pending()
            except BaseException as error:
                passes = self._state.ownership.ended is None and isinstance(error, RETRYABLE)
                if isinstance(error, MemwalError) and not passes:
                    self._give_back()
                else:  # An interruption, too, leaves the rows to the next close.
                    self._state.is_closing = False
                raise
            self._give_back()

    def _give_back(self) -> None:
        """End the threads, flush what is due and release the region; errors as for ``_require_stored``."""
        self._scheduler.stop()
        self._is_closed = True
        ended = self._state.ownership.ended
        try:
            if ended is None:
                self._scheduler.flush_due_at_end()
        finally:  # Neither a flush that cannot succeed nor what else ended this writer keeps other writers away.
            if not isinstance(ended, FencedError):
                note_release(self._store, self.region_id, self.writer_epoch, self._state.ownership.is_confirmed)
        self._require_stored()

    def _require_stored(self) -> None:
        """Tell of rows that were put and are lost, so that a close that returns says that there are none."""
        ended = self._state.ownership.ended
        if ended is not None and not self._settings.durable_write and self._state.queue.unstored():
            # Their puts succeeded. A thread of this writer may have found the end, and told nobody.
            raise ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_closed:
            self.close()

    def write(self, batch: pa.Table) -> PutReceipt:
        """Write what ``prepared`` or ``prepared_deletes`` returned; returns and raises as ``put`` does."""
        is_first = self._state.pending_since is None
        is_durable = self._settings.durable_write and batch.num_rows > 0
        future = self._admission.accept(batch, is_awaited=is_durable)
        if self._settings.indexed_write:
            self._index()
        if is_durable:
            return self._wal.commit(future)
        self._scheduler.write_wal_if_due(is_first=is_first)
        return future.result()

    def _index(self) -> None:
        """Index the rows of a put. They are taken by now, so that an error is left to readers, who index the rest."""
        try:
            for memtable in self.view().memtables:  # A rotation may have moved the rows from the active one.
                self._indexes.refreshed(memtable)
            self._search.refresh()
        except Exception as error:  # noqa: BLE001 - whatever it is, the rows are taken
            _log.warning("rows of a put are not indexed yet [region_id=%s]: %r", self.region_id, error)


def _memtables_of(state: RegionState) -> Callable[[], Sequence[MemTable]]:
    """Return a function that returns the MemTables without referencing the writer itself."""

    def memtables() -> Sequence[MemTable]:
        with state.lock:
            return state.queue.all

    return memtables
