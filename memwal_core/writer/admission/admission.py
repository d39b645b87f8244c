"""Taking rows into the active MemTable: each batch whole, into exactly one generation, within bounds."""

from __future__ import annotations

from concurrent.futures import Future

import pyarrow as pa

from memwal_core.clock import Clock
from memwal_core.errors import BackpressureError, InvalidRequestError
from memwal_core.settings import WriterSettings
from memwal_core.writer import stats
from memwal_core.writer.admission.memory import MemoryBudget
from memwal_core.writer.flushing.flush_queue import FlushQueue
from memwal_core.writer.flushing.rotation import RotationReason, reason_for_incoming
from memwal_core.writer.flushing.scheduler import BackgroundScheduler
from memwal_core.writer.log.group_commit import GroupCommit, PutReceipt
from memwal_core.writer.state import RegionState

_LONGEST_WAIT_S = 0.05
"""Longest sleep of a put before it reads the clock again, which may not be the system's."""


class Admission:
    """Admits rows to a region; no other path exists. Safe to call from several threads.

    ``memory`` is a bound that several writers share; none if None.
    """

    def __init__(  # noqa: PLR0913  (built once, by the region writer)
        self,
        state: RegionState,
        wal: GroupCommit,
        flushes: FlushQueue,
        scheduler: BackgroundScheduler,
        *,
        settings: WriterSettings,
        clock: Clock,
        memory: MemoryBudget | None,
    ) -> None:
        self._state = state
        self._wal = wal
        self._flushes = flushes
        self._scheduler = scheduler
        self._settings = settings
        self._clock = clock
        self._memory = memory
        if memory is not None:
            memory.join(scheduler)

    def require_open(self) -> None:
        """Refuse with ``InvalidRequestError`` when the writer is closed, or with the error that ended it."""
        self._state.ownership.require()
        if self._state.is_closing:
            raise InvalidRequestError(
                "the writer is closed", remedy="open a new writer", region_id=str(self._state.ownership.region_id)
            )

    def accept(self, batch: pa.Table, *, is_awaited: bool) -> Future[PutReceipt]:
        """Add rows (in the MemTable schema) to the active MemTable, after rotating and waiting for room where needed.

        If the caller waits for durability (``is_awaited``) and there are rows, the future is settled when they are
        durable, otherwise at once.

        Raises:
            BackpressureError: The flush queue stayed full; nothing was written.
        """
        size_bytes = int(batch.nbytes)
        deadline: float | None = None
        while True:
            with self._state.lock:
                self.require_open()
                reason = self._rotation_reason(batch.num_rows, size_bytes)
                if not self._flushes.is_full() or (reason is None and not self._is_out_of_memory(size_bytes)):
                    if reason is not None:
                        self._scheduler.rotate(reason)
                    is_first = not self._state.queue.active.num_rows
                    future = self._add(batch, size_bytes, is_awaited=is_awaited)
                    break
            deadline = self._wait_for_room(deadline)
        self._state.meters.count(stats.PUTS)
        self._state.meters.count(stats.ROWS, batch.num_rows)
        if reason is not None:
            self._scheduler.flush_soon()
        elif is_first:
            self._scheduler.note_first_row()
        if self._memory is not None:
            self._memory.relieve()
        return future

    def _rotation_reason(self, rows: int, size_bytes: int) -> RotationReason | None:
        active = self._state.queue.active
        if self._scheduler.rotation_is_requested and active.num_rows:
            return RotationReason.MEMORY
        return reason_for_incoming(active, rows, size_bytes, self._clock.now(), self._settings)

    def _is_out_of_memory(self, size_bytes: int) -> bool:
        """Return whether a region that cannot flush must not grow; like its own limits, for one that has rows."""
        return (
            self._memory is not None and self._state.queue.active.num_rows > 0 and self._memory.is_exceeded(size_bytes)
        )

    def _add(self, batch: pa.Table, size_bytes: int, *, is_awaited: bool) -> Future[PutReceipt]:
        memtable = self._state.queue.active
        if batch.num_rows:
            if not memtable.num_rows:
                memtable.created = self._clock.now()
            if self._state.pending_since is None:
                self._state.pending_since = self._clock.monotonic()
            fragment = memtable.add(batch, size_bytes)
            if is_awaited:
                return self._wal.enlist(fragment, memtable.generation)
        done: Future[PutReceipt] = Future()
        done.set_result(PutReceipt(batch.num_rows, memtable.generation, None))
        return done

    def _wait_for_room(self, deadline: float | None) -> float:
        """Wait a while for the flush queue, or work on it; return the deadline of this put."""
        now = self._clock.monotonic()
        if deadline is None:
            deadline = now + self._settings.backpressure_timeout_s
            self._state.meters.count(stats.BACKPRESSURE_WAITS)
            self._scheduler.flush_soon()
            if not self._flushes.is_full():
                return deadline
        if now >= deadline or not self._settings.background_flush:
            self._state.meters.count(stats.BACKPRESSURE_ERRORS)
            raise BackpressureError(
                "the region's flush queue is full; nothing was written",
                remedy="put again later; the writer's stats() and log show why flushes are slow or fail",
                region_id=str(self._state.ownership.region_id),
                queued=len(self._state.queue.waiting),
                queued_bytes=self._state.queue.waiting_bytes,
                oldest_queued_s=self._flushes.oldest_age_s(),
                last_flush_error=self._state.meters.last_flush_error,
            )
        self._flushes.is_stalled()
        with self._state.lock:
            if self._flushes.is_full() and self._state.ownership.ended is None:
                self._state.changed.wait(min(deadline - now, _LONGEST_WAIT_S))
        return deadline
