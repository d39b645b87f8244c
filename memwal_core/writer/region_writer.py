"""The writer of one region: claim, replay, put, flush, close."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import BackpressureError, InvalidRequestError, MemwalError
from memwal_core.ids import IdSource, RegionId
from memwal_core.manifest import FlushedGeneration, RegionManifest
from memwal_core.memtable import MemTable, with_tombstones
from memwal_core.settings import Settings
from memwal_core.writer import stats
from memwal_core.writer.background import BackgroundLoop
from memwal_core.writer.flush_queue import RETRYABLE
from memwal_core.writer.group_commit import PutReceipt
from memwal_core.writer.memory import MemoryBudget
from memwal_core.writer.opening import WriterParts, open_parts
from memwal_core.writer.rotation import (
    RotationReason,
    reason_for_incoming,
    reason_without_incoming,
    seconds_until_too_old,
)
from memwal_core.writer.stats import WriterStats
from memwal_core.writer.validate import conform, tombstones

_log = logging.getLogger(__name__)

_LONGEST_WAIT_S = 0.05
"""How long a put waits at most before it looks at the clock again, which may not be the system's."""


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region's manifest and MemTables that fit together: no generation is missing or in both.

    Attributes:
        manifest: As this writer last recorded it.
        memtables: Generations that it does not list, oldest first, the active one last.
    """

    manifest: RegionManifest
    memtables: tuple[MemTable, ...]


class RegionWriter:
    """The one active writer of a region. Safe to call from several threads; use ``open``.

    A put is acknowledged only while the region is provably still ours: the epoch was verified no
    longer than ``epoch_check_interval_s`` ago, measured at the moment of acknowledgement. Together
    with the rule that younger WAL entries are never collected, a writer that slept through its own
    replacement cannot acknowledge rows that nobody will replay.

    Rows are readable in ``view`` as soon as a put has taken them. ``sync`` makes them durable,
    ``flush`` makes them part of a flushed MemTable, ``close`` makes them durable and gives up.
    """

    @classmethod
    def open(
        cls,
        table: BaseTable,
        region_id: RegionId,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
        memory: MemoryBudget | None = None,
    ) -> Self:
        """Claim a region, which fences its present writer, and replay its unflushed rows.

        Args:
            table: The base table; it needs a primary key and a MemWAL index.
            region_id: The region to own.
            settings: Values; defaults if None.
            clock: Time; the system's if None.
            ids: Source of identifiers; the system's if None.
            memory: A bound that several writers share; none if None.

        Raises:
            InvalidRequestError: The table or region cannot be written by this writer.
            FencedError: A newer writer claimed the region meanwhile.
            CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
        """
        chosen = settings if settings is not None else Settings()
        source = ids if ids is not None else IdSource()
        time = clock if clock is not None else SystemClock()
        writer = cls(open_parts(table, region_id, chosen, time, source), chosen, time, memory)
        writer._begin()
        return writer

    def __init__(self, parts: WriterParts, settings: Settings, clock: Clock, memory: MemoryBudget | None) -> None:
        """Keep the parts of a claimed and replayed region."""
        self._layout = parts.layout
        self._store_kind = parts.store_kind
        self._state = parts.state
        self._wal = parts.wal
        self._flushes = parts.flushes
        self._settings = settings.writer
        self._clock = clock
        self._memory = memory
        self._rotation_is_requested = False
        self._flush_retries = 0
        region = str(parts.state.ownership.region_id)[:8]
        self._wal_loop = BackgroundLoop(self, RegionWriter._wal_round, f"memwal-wal-{region}")
        self._flush_loop = BackgroundLoop(self, RegionWriter._flush_round, f"memwal-flush-{region}")

    # -- what callers see ---------------------------------------------------------------------

    @property
    def region_id(self) -> RegionId:
        """The region that is owned."""
        return self._state.ownership.region_id

    @property
    def writer_epoch(self) -> int:
        """The epoch that was claimed."""
        return self._state.ownership.epoch

    @property
    def memtable(self) -> MemTable:
        """The active MemTable."""
        return self._state.queue.active

    def view(self) -> RegionView:
        """Return the manifest and all MemTables of one moment, for readers in the same process."""
        with self._state.lock:
            return RegionView(self._state.manifest, self._state.queue.all)

    def put(self, rows: pa.Table | pa.RecordBatch) -> PutReceipt:
        """Write rows: new keys are inserted, existing ones replaced, the last row of a key wins.

        Args:
            rows: The base table's columns in any order; keys must not be NULL.

        Returns:
            Where the rows are. With ``durable_write`` they are in the WAL.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            BackpressureError: The flush queue stayed full; nothing was written.
            FencedError: Another writer owns the region. The rows are not acknowledged.
            CommitUnknownError: Storage did not answer; the rows stay pending and may be durable.
                Put them again, or call ``sync``.
        """
        return self._write(self._conformed(rows))

    def put_async(self, rows: pa.Table | pa.RecordBatch) -> Future[PutReceipt]:
        """Write rows and return at once; they are readable, and durable when the future says so.

        Args:
            rows: As for ``put``.

        Returns:
            A future that is settled exactly once, with the receipt or with an error of ``put``.
            Puts whose futures are open together share WAL entries. With ``background_flush`` the
            writer's thread writes them now; without, the next durable put, ``sync``, ``flush`` or
            ``close`` does.

        Raises:
            InvalidRequestError: The batch does not fit; nothing was written.
            BackpressureError: The flush queue stayed full; nothing was written.
            FencedError: Another writer owns the region; nothing was written.
        """
        future = self._accept(self._conformed(rows), is_awaited=True)
        if self._settings.background_flush:
            self._wal_loop.wake()
        return future

    def delete(self, keys: pa.Table | pa.RecordBatch) -> PutReceipt:
        """Delete rows by key; keys that do not exist are no error.

        Args:
            keys: The primary key's columns in any order; must not be NULL.

        Returns:
            Where the tombstones are, as for ``put``.

        Raises:
            InvalidRequestError: The keys do not fit, or the table has a value column that may not
                be NULL, so that it cannot hold a tombstone; nothing was written.
            BackpressureError: As for ``put``.
            FencedError: As for ``put``.
            CommitUnknownError: As for ``put``.
        """
        layout = self._layout
        return self._write(tombstones(keys, layout.schema, layout.key, layout.memtable_schema))

    def sync(self) -> int:
        """Make all rows put so far durable.

        Returns:
            The last WAL entry; 0 if the region has none.

        Raises:
            FencedError: Another writer owns the region; rows since the last sync are not acknowledged.
            CommitUnknownError: Storage did not answer; call again.
        """
        self._require_open()
        self._wal.write_pending()
        return self._wal.last_wal_id

    def rotate(self) -> bool:
        """Freeze the active MemTable and queue it for its flush, without waiting for that.

        Returns:
            Whether there were rows to freeze.
        """
        with self._state.lock:
            self._require_open()
            if not self._state.queue.active.num_rows:
                return False
            self._freeze(RotationReason.REQUEST)
        if self._settings.background_flush:
            self._flush_loop.wake()
        return True

    def flush(self) -> FlushedGeneration | None:
        """Turn all MemTables into flushed MemTables, ready to be merged, and wait for that.

        Returns:
            The newest recorded generation; None if there was nothing to flush.

        Raises:
            FencedError: Another writer owns the region and will replay the rows.
            UnavailableError: Storage failed; the rows stay readable and durable. Call again.
            CommitUnknownError: Storage did not answer; call again.
            ConflictError: Others kept changing the region's manifest; call again.
        """
        self._require_open()
        self._wal.write_pending()
        with self._state.lock:
            if self._state.queue.active.num_rows:
                self._freeze(RotationReason.REQUEST)
            waiting = self._state.queue.waiting
        return self._flushes.flush_through(waiting[-1]) if waiting else None

    def run_due(self) -> None:
        """Do now what the background threads would do: due WAL writes, rotations and flushes.

        For callers that switched ``background_flush`` off and call this from a loop of their own.

        Raises:
            FencedError: Another writer owns the region.
            UnavailableError: Storage failed; rows stay where they are. Call again.
            CommitUnknownError: Storage did not answer; call again.
            ConflictError: Others kept changing the region's manifest; call again.
        """
        self._require_open()
        if self._seconds_until_wal_write() == 0:
            self._wal.write_pending()
        self._rotate_if_due()
        while self._flushes.flush_next() is not None:
            pass

    def stats(self) -> WriterStats:
        """Return counters and gauges of this moment."""
        with self._state.lock:
            queue, meters = self._state.queue, self._state.meters
            pending = queue.unstored()
            return WriterStats(
                store_kind=self._store_kind,
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
        """Make pending rows durable, end the threads and give up writing. MemTables stay in the WAL.

        Skipping it loses nothing that was acknowledged as durable. Closing twice is harmless.

        Raises:
            FencedError: Another writer owns the region; rows since the last sync are not acknowledged.
            CommitUnknownError: Storage did not answer; call again to try again.
            MemwalError: Another reason why the writer had to stop; it is closed.
        """
        with self._state.lock:
            if self._state.is_closed:
                return
            self._state.is_closed = True
            self._state.changed.notify_all()
        try:
            if self._state.ownership.ended is None:
                self._wal.write_pending()
        except MemwalError as error:
            self._state.is_closed = not isinstance(error, RETRYABLE)
            raise
        finally:
            if self._state.is_closed:
                self._wal_loop.stop()
                self._flush_loop.stop()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def buffered_bytes(self) -> int:
        """Return the Arrow bytes of the active MemTable, for a shared memory budget."""
        return self._state.queue.active.size_bytes

    def request_rotation(self) -> None:
        """Let the next put, or the background thread, freeze the active MemTable."""
        self._rotation_is_requested = True
        if self._settings.background_flush:
            self._flush_loop.wake()

    # -- writes -------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._memory is not None:
            self._memory.join(self)
        if reason_without_incoming(self.memtable, self._clock.now(), self._settings) is not None:
            self._rotate_if_due()
            self._flush_soon()

    def _conformed(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        layout = self._layout
        return with_tombstones(conform(rows, layout.schema, layout.key), layout.memtable_schema, deleted=False)

    def _write(self, batch: pa.Table) -> PutReceipt:
        is_first = self._state.pending_since is None
        future = self._accept(batch, is_awaited=self._settings.durable_write)
        if self._settings.durable_write and batch.num_rows:
            return self._wal.commit(future)
        if not self._settings.durable_write:
            self._write_wal_if_due(is_first=is_first)
        return future.result()

    def _accept(self, batch: pa.Table, *, is_awaited: bool) -> Future[PutReceipt]:
        """Add rows to the active MemTable, after rotation and waiting for room where needed."""
        size_bytes = int(batch.nbytes)
        deadline: float | None = None
        while True:
            with self._state.lock:
                self._require_open()
                reason = self._rotation_reason(batch.num_rows, size_bytes)
                if reason is None or not self._flushes.is_full():
                    if reason is not None:
                        self._freeze(reason)
                    is_first = not self._state.queue.active.num_rows
                    future = self._add(batch, is_awaited=is_awaited)
                    break
            deadline = self._wait_for_room(deadline)
        meters = self._state.meters
        meters.count(stats.PUTS)
        meters.count(stats.ROWS, batch.num_rows)
        if reason is not None:
            self._flush_soon()
        elif is_first and self._settings.background_flush:
            self._flush_loop.wake()  # It must know when the MemTable will be too old.
        if self._memory is not None:
            self._memory.relieve()
        return future

    def _add(self, batch: pa.Table, *, is_awaited: bool) -> Future[PutReceipt]:
        memtable = self._state.queue.active
        if batch.num_rows:
            if not memtable.num_rows:
                memtable.created = self._clock.now()
            if self._state.pending_since is None:
                self._state.pending_since = self._clock.monotonic()
            fragment = memtable.add(batch)
            if is_awaited:
                return self._wal.enlist(fragment, memtable.generation)
        done: Future[PutReceipt] = Future()
        done.set_result(PutReceipt(batch.num_rows, memtable.generation, None))
        return done

    def _require_open(self) -> None:
        self._state.ownership.require()
        if self._state.is_closed:
            raise InvalidRequestError("the writer is closed", remedy="open a new one", region_id=str(self.region_id))

    def _rotation_reason(self, rows: int, size_bytes: int) -> RotationReason | None:
        active = self._state.queue.active
        if self._rotation_is_requested and active.num_rows:
            return RotationReason.MEMORY
        return reason_for_incoming(active, rows, size_bytes, self._clock.now(), self._settings)

    def _freeze(self, reason: RotationReason) -> None:
        """Rotate; call under the state's lock."""
        waiting = self._state.queue.rotate(self._state.schema, self._clock.now())
        self._rotation_is_requested = False
        self._state.meters.rotated(reason)
        self._flushes.report_gauges()
        _log.info(
            "MemTable is full [region_id=%s, generation=%d, reason=%s, rows=%d, queued=%d]",
            self.region_id,
            waiting.memtable.generation,
            reason,
            waiting.memtable.num_rows,
            len(self._state.queue.waiting),
        )

    def _wait_for_room(self, deadline: float | None) -> float:
        """Wait a while for the flush queue, or work on it; return the deadline of this put.

        Raises:
            BackpressureError: The queue is still full at the deadline.
        """
        now = self._clock.monotonic()
        if deadline is None:
            deadline = now + self._settings.backpressure_timeout_s
            self._state.meters.count(stats.BACKPRESSURE_WAITS)
            if not self._settings.background_flush:
                self._flush_soon()
                if not self._flushes.is_full():
                    return deadline
        if now >= deadline or not self._settings.background_flush:
            self._state.meters.count(stats.BACKPRESSURE_ERRORS)
            raise BackpressureError(
                "the region's flush queue is full; nothing was written",
                remedy="put again later; `stats` and the log tell why flushes are slow or fail",
                region_id=str(self.region_id),
                queued=len(self._state.queue.waiting),
                queued_bytes=self._state.queue.waiting_bytes,
                oldest_queued_s=self._flushes.oldest_age_s(),
                last_flush_error=self._state.meters.last_flush_error,
            )
        self._flushes.is_stalled()
        self._flush_loop.start()
        with self._state.lock:
            if self._flushes.is_full() and self._state.ownership.ended is None:
                self._state.changed.wait(min(deadline - now, _LONGEST_WAIT_S))
        return deadline

    # -- work in the background -----------------------------------------------------------------

    def _flush_soon(self) -> None:
        """Flush the queue: in the background, or here and now.

        Raises:
            FencedError: Another writer owns the region.
        """
        if self._settings.background_flush:
            self._flush_loop.wake()
            return
        try:
            while self._flushes.flush_next() is not None:
                pass
        except RETRYABLE:
            return  # Counted and logged; the MemTable keeps its place and the next put tries again.

    def _rotate_if_due(self) -> None:
        with self._state.lock:
            active = self._state.queue.active
            reason = reason_without_incoming(active, self._clock.now(), self._settings)
            if self._rotation_is_requested and active.num_rows:
                reason = RotationReason.MEMORY
            if reason is not None and not self._flushes.is_full():
                self._freeze(reason)

    def _seconds_until_wal_write(self) -> float | None:
        """Return when buffered rows must go to the WAL: 0 for now, None if there are none."""
        with self._state.lock:
            pending, since = self._state.queue.unstored(), self._state.pending_since
            if not pending or since is None:
                return None
            if (
                self._wal.has_waiting
                or sum(memtable.pending_bytes for memtable, _ in pending) >= self._settings.wal_flush_bytes
                or sum(len(fragments) for _, fragments in pending) >= self._settings.wal_flush_puts
            ):
                return 0.0
            return max(0.0, since + self._settings.wal_flush_interval_s - self._clock.monotonic())

    def _write_wal_if_due(self, *, is_first: bool) -> None:
        """Write the WAL entry of non-durable puts at a threshold: in the background, or here and now.

        Raises:
            FencedError: Another writer owns the region.
        """
        is_due = self._seconds_until_wal_write() == 0
        if self._settings.background_flush:
            if is_due or is_first:
                self._wal_loop.wake()
        elif is_due:
            self._try_wal_write()

    def _try_wal_write(self) -> None:
        try:
            self._wal.write_pending()
        except RETRYABLE:
            _log.warning("WAL entry of buffered rows failed, they stay pending [region_id=%s]", self.region_id)

    def _wal_round(self) -> float | None:
        """Write what is due; the background thread's round."""
        try:
            if self._seconds_until_wal_write() == 0:
                self._try_wal_write()
        except MemwalError:
            return None  # The writer has stopped; its callers meet the error.
        remaining_s = self._seconds_until_wal_write()
        return None if remaining_s is None else max(remaining_s, _LONGEST_WAIT_S)

    def _flush_round(self) -> float | None:
        """Rotate and flush what is due; the background thread's round."""
        try:
            self._rotate_if_due()
            while self._flushes.flush_next() is not None:
                self._flush_retries = 0
                if self._state.is_closed:
                    return None
        except RETRYABLE:
            return self._retry_wait_s()
        except MemwalError as error:
            self._state.ownership.end(error)
            return None
        if not self.memtable.num_rows:
            return None  # The next put wakes this thread.
        return max(_LONGEST_WAIT_S, seconds_until_too_old(self.memtable, self._clock.now(), self._settings))

    def _retry_wait_s(self) -> float:
        self._flush_retries += 1
        wait_s = self._settings.flush_retry_wait_s * 2.0 ** (self._flush_retries - 1)
        return min(wait_s, self._settings.flush_retry_wait_max_s)
