"""When full MemTables are frozen and flushed and buffered rows go to the WAL, with threads or without."""

from __future__ import annotations

import logging

from memwal_core.clock import Clock
from memwal_core.errors import MemwalError
from memwal_core.settings import WriterSettings
from memwal_core.writer.flushing.background import BackgroundLoop
from memwal_core.writer.flushing.flush_queue import RETRYABLE, FlushQueue
from memwal_core.writer.flushing.rotation import RotationReason, reason_without_incoming, seconds_until_too_old
from memwal_core.writer.log.group_commit import GroupCommit
from memwal_core.writer.state import RegionState

_log = logging.getLogger(__name__)

_SHORTEST_WAIT_S = 0.05
_MAX_DOUBLINGS = 64


class BackgroundScheduler:
    """The background scheduler of a region writer: the work that no single put asks for. Thread-safe.

    With ``background_flush`` two threads do it, one for the WAL and one for flushes, so that a slow flush
    never delays durability. Without, the put that reaches a limit does it.
    """

    def __init__(
        self, state: RegionState, wal: GroupCommit, flushes: FlushQueue, settings: WriterSettings, clock: Clock
    ) -> None:
        self._state = state
        self._wal = wal
        self._flushes = flushes
        self._settings = settings
        self._clock = clock
        self._rotation_is_requested = False
        self._flush_retries = 0
        region = str(state.ownership.region_id)[:8]
        self._wal_loop = BackgroundLoop(self, BackgroundScheduler._wal_round, f"memwal-wal-{region}")
        self._flush_loop = BackgroundLoop(self, BackgroundScheduler._flush_round, f"memwal-flush-{region}")

    def buffered_bytes(self) -> int:
        """Return the Arrow bytes of the active MemTable, for a shared memory budget."""
        return self._state.queue.active.size_bytes

    def request_rotation(self) -> bool:
        """Let the next put, or the background thread, freeze the active MemTable; return whether they can."""
        with self._state.lock:
            is_over = self._state.is_closing or self._state.ownership.ended is not None
            if is_over or self._flushes.is_full():
                return False
        self._rotation_is_requested = True
        if self._settings.background_flush:
            self._flush_loop.wake()
        return True

    @property
    def rotation_is_requested(self) -> bool:
        """Whether a shared memory budget asked for a rotation."""
        return self._rotation_is_requested

    def rotate(self, reason: RotationReason) -> None:
        """Freeze the active MemTable and queue it; call under the state's lock."""
        waiting = self._state.queue.rotate(self._state.schema, self._clock.now(), self._clock.monotonic())
        self._rotation_is_requested = False
        self._state.meters.rotated(reason)
        self._flushes.report_gauges()
        _log.info(
            "MemTable is full [region_id=%s, generation=%d, reason=%s, rows=%d, queued=%d]",
            self._state.ownership.region_id,
            waiting.memtable.generation,
            reason,
            waiting.memtable.num_rows,
            len(self._state.queue.waiting),
        )

    def rotate_if_due(self) -> bool:
        """Freeze the active MemTable if it is too large or too old and the queue has room; return whether it did."""
        with self._state.lock:
            active = self._state.queue.active
            reason = reason_without_incoming(active, self._clock.now(), self._settings)
            if self._rotation_is_requested and active.num_rows:
                reason = RotationReason.MEMORY
            if reason is None or self._flushes.is_full():
                return False
            self.rotate(reason)
            return True

    def note_first_row(self) -> None:
        """Wake the flush thread, which must know when the active MemTable will be too old."""
        if self._settings.background_flush:
            self._flush_loop.wake()

    def flush_soon(self) -> None:
        """Flush the queue, in the background or here and now; the latter raises ``FencedError`` after a takeover."""
        if self._settings.background_flush:
            self._flush_loop.wake()
            return
        try:
            while self._flushes.flush_next() is not None:
                pass
        except RETRYABLE:
            return  # Counted and logged; the MemTable keeps its place and the next put tries again.

    def write_wal_soon(self) -> None:
        """Wake the WAL thread, if there is one; do its work where none is to be had, or nobody might."""
        if self._settings.background_flush and not self._wal_loop.wake():
            self._wal_round()

    def write_wal_if_due(self, *, is_first: bool) -> None:
        """Write the WAL entry of non-durable puts at a threshold, in the background or now.

        ``is_first`` says that nothing was buffered before, so that the thread must learn the time limit.
        """
        is_due = self._seconds_until_wal_write() == 0
        if self._settings.background_flush:
            if is_due or is_first:
                self._wal_loop.wake()
        elif is_due:
            self._try_wal_write()

    def run_due(self) -> None:
        """Do now what the threads would do; errors as for ``RegionWriter.run_due``."""
        if self._seconds_until_wal_write() == 0:
            self._wal.write_pending()
        self.rotate_if_due()
        while self._flushes.flush_next() is not None:
            pass

    def flush_due_at_end(self) -> None:
        """Flush full MemTables and rows that are old enough, once; a failure that may pass leaves them to a successor.

        Call it after ``stop``.

        Raises:
            FencedError: Another writer owns the region.
        """
        try:
            while True:
                rotated = self.rotate_if_due()
                if self._flushes.flush_next() is None and not rotated:
                    return
        except RETRYABLE as error:
            _log.warning(
                "rows stay in the WAL, their flush failed [region_id=%s]: %s", self._state.ownership.region_id, error
            )

    def stop(self) -> None:
        """End the threads; waits for a running flush."""
        self._wal_loop.stop()
        self._flush_loop.stop()

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

    def _try_wal_write(self) -> bool:
        try:
            self._wal.write_pending()
        except RETRYABLE as error:
            region_id = self._state.ownership.region_id
            _log.warning("WAL entry not written, its rows stay pending [region_id=%s]: %s", region_id, error)
            return False
        return True

    def _wal_round(self) -> float | None:
        try:
            if self._seconds_until_wal_write() == 0 and not self._try_wal_write():
                return max(self._settings.wal_flush_interval_s, _SHORTEST_WAIT_S)  # A full disk refuses at once.
        except MemwalError:
            return None  # The writer has stopped; its callers meet the error.
        remaining_s = self._seconds_until_wal_write()
        return None if remaining_s is None else max(remaining_s, _SHORTEST_WAIT_S)

    def _flush_round(self) -> float | None:
        try:
            self.rotate_if_due()
            while self._flushes.flush_next() is not None:
                self._flush_retries = 0
                if self._state.is_closing:
                    return None
        except RETRYABLE:
            return self._retry_wait_s()
        except MemwalError as error:
            self._state.ownership.end(error)
            return None
        active = self._state.queue.active
        if not active.num_rows:
            return None  # The next put wakes this thread.
        return max(_SHORTEST_WAIT_S, seconds_until_too_old(active, self._clock.now(), self._settings))

    def _retry_wait_s(self) -> float:
        self._flush_retries += 1
        return retry_wait_s(self._flush_retries, self._settings)


def retry_wait_s(failures: int, settings: WriterSettings) -> float:
    """Return how long to wait after a number of failed flushes in a row, at least 1."""
    # Doubling in floats would overflow for a flush that failed a thousand times, and end its thread.
    doublings = min(failures - 1, _MAX_DOUBLINGS)
    return min(settings.flush_retry_wait_s * 2.0**doublings, settings.flush_retry_wait_max_s)
