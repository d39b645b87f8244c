"""Flushing the queue of full MemTables, strictly in the order of their generations.

A failed flush keeps its place, so later generations wait behind it; it is retried with a new
directory. One flush runs at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memwal_core.clock import Clock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    FencedError,
    InternalError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.flushed.write import FlushPlan
from memwal_core.format.paths import generation_directory_name
from memwal_core.ids import IdSource
from memwal_core.memtable import MemTable, Waiting
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest, record_flush
from memwal_core.settings import WriterSettings
from memwal_core.writer import stats
from memwal_core.writer.log.group_commit import GroupCommit
from memwal_core.writer.state import RegionState
from memwal_core.writer.stats import Discarded

_log = logging.getLogger(__name__)

RETRYABLE = (UnavailableError, CommitUnknownError, ConflictError, StoreRefusedError)
"""Failures of a flush that are retried; what a store refuses it may allow when credentials or a disk were mended."""

PlanFlush = Callable[[MemTable, str], FlushPlan]
WriteFlush = Callable[[FlushPlan, MemTable], FlushedGeneration]


class FlushQueue:
    """Turns waiting MemTables into recorded generations. Safe to call from several threads.

    ``plan`` plans the flush of a stored MemTable into a directory, ``write`` creates that directory; ``wal`` first
    writes rows that are still pending.
    """

    def __init__(  # noqa: PLR0913  (built once, by the region writer)
        self,
        state: RegionState,
        wal: GroupCommit,
        manifests: ManifestStore,
        *,
        plan: PlanFlush,
        write: WriteFlush,
        settings: WriterSettings,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._state = state
        self._wal = wal
        self._manifests = manifests
        self._plan = plan
        self._write = write
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._turn = threading.Lock()
        self._attempts: list[FlushedGeneration] = []
        """Directories of the oldest MemTable whose record got no reply; one of them may be recorded."""
        self._stall_reported = False

    @property
    def is_running(self) -> bool:
        """Whether a flush is running."""
        return self._turn.locked()

    def flush_through(self, target: Waiting) -> FlushedGeneration:
        """Flush the queue up to and including one MemTable, and return its record.

        Raises:
            FencedError: Another writer owns the region and will replay the rows.
            UnavailableError: Storage failed; the rows stay readable and durable. Call again.
            CommitUnknownError: Storage did not answer; call again.
            ConflictError: Other processes kept changing the region's manifest; call again.
        """
        while True:
            with self._turn:
                if target.record is not None:
                    return target.record
                if self._flush_oldest() is None:
                    raise InternalError(
                        "a MemTable left the queue without a record",
                        remedy="report this",
                        generation=target.memtable.generation,
                    )

    def flush_next(self) -> FlushedGeneration | None:
        """Flush the oldest waiting MemTable and return its record, None if none waits.

        Errors as for ``flush_through``.
        """
        with self._turn:
            return self._flush_oldest()

    def is_full(self) -> bool:
        """Return whether no further MemTable may join the queue; call under the state's lock."""
        queue = self._state.queue
        return (
            len(queue.waiting) >= self._settings.max_queued_memtables
            or queue.waiting_bytes >= self._settings.max_queued_bytes
        )

    def oldest_age_s(self) -> float:
        """Return the seconds for which the oldest MemTable has waited; 0 if none waits."""
        oldest = self._state.queue.oldest
        return self._clock.monotonic() - oldest.since if oldest is not None else 0.0

    def is_stalled(self) -> bool:
        """Return whether the oldest MemTable has waited too long; the first time this is logged."""
        age_s = self.oldest_age_s()
        stalled = age_s > self._settings.stalled_queue_s
        if stalled and not self._stall_reported:
            _log.warning(
                "the flush queue is stalled: slow or failing flushes, or a contended manifest "
                "[region_id=%s, generation=%d, queued=%d, oldest_s=%.0f, last_error=%s]",
                self._state.ownership.region_id,
                self._state.manifest.current_generation,
                len(self._state.queue.waiting),
                age_s,
                self._state.meters.last_flush_error,
            )
        self._stall_reported = stalled
        self._state.meters.gauge(stats.QUEUE_STALLED, float(stalled))
        return stalled

    def report_gauges(self) -> None:
        """Set the gauges of the queue."""
        meters, queue = self._state.meters, self._state.queue
        meters.gauge(stats.QUEUED, len(queue.waiting))
        meters.gauge(stats.QUEUED_BYTES, queue.waiting_bytes)
        meters.gauge(stats.ACTIVE_BYTES, queue.active.size_bytes)

    def _flush_oldest(self) -> FlushedGeneration | None:
        oldest = self._state.queue.oldest
        if oldest is None:
            return None
        started = self._clock.monotonic()
        try:
            record = self._settled(oldest) or self._flush(oldest)
        except MemwalError as error:
            self._failed(oldest.memtable, error)
            raise
        except MemoryError as error:
            short = UnavailableError(
                "there is not enough memory to flush a MemTable",
                remedy="give it more, or lower MEMWAL_WRITER__MAX_MEMTABLE_BYTES; the rows are safe in the WAL",
                region_id=str(self._state.ownership.region_id),
                generation=oldest.memtable.generation,
            )
            self._failed(oldest.memtable, short)
            raise short from error
        meters = self._state.meters
        meters.last_flush_s = self._clock.monotonic() - started
        meters.last_flush_error = None
        meters.count(stats.FLUSHES)
        meters.record(stats.FLUSH_DURATION, meters.last_flush_s)
        self.report_gauges()
        self.is_stalled()
        return record

    def _failed(self, memtable: MemTable, error: MemwalError) -> None:
        self._state.meters.count(stats.FLUSH_FAILURES)
        self._state.meters.last_flush_error = str(error)
        _log.warning(
            "flush failed [region_id=%s, generation=%d, error=%s]",
            self._state.ownership.region_id,
            memtable.generation,
            error,
        )
        self.is_stalled()
        if isinstance(error, FencedError):
            self._state.ownership.end(error)

    def _flush(self, waiting: Waiting) -> FlushedGeneration:
        self._state.ownership.require()
        memtable = waiting.memtable
        if not memtable.is_stored:
            self._wal.write_pending()
        flush_id = self._ids.directory_prefix()
        plan = self._plan(memtable, generation_directory_name(flush_id, memtable.generation))
        _log.info(
            "flush begins [flush_id=%s, region_id=%s, generation=%d, first_wal_id=%d, last_wal_id=%d, rows=%d]",
            flush_id,
            plan.region_id,
            plan.generation,
            plan.first_wal_id,
            plan.last_wal_id,
            plan.physical_rows,
        )
        written = self._written(plan, memtable)
        _log.info("flushed table is complete [flush_id=%s, path=%s]", flush_id, written.path)
        record = self._record(waiting, written, plan.last_wal_id)
        self._state.meters.discarded_rows(Discarded(plan.first_wal_id, plan.last_wal_id, plan.superseded))
        _log.info(
            "flush is recorded [flush_id=%s, region_id=%s, generation=%d, manifest_version=%d]",
            flush_id,
            plan.region_id,
            record.generation,
            self._state.manifest.version,
        )
        return record

    def _written(self, plan: FlushPlan, memtable: MemTable) -> FlushedGeneration:
        """Write a flushed MemTable; see ``write_flushed_memtable`` for errors.

        Raises:
            FencedError: The WAL entries are gone, because a newer writer has flushed them.
        """
        try:
            return self._write(plan, memtable)
        except ObjectNotFoundError:
            self._state.ownership.check(self._manifests.load(self._state.ownership.region_id))
            raise

    def _record(self, waiting: Waiting, written: FlushedGeneration, last_wal_id: int) -> FlushedGeneration:
        """Record a flush, unless an earlier attempt of the same MemTable turns out to be recorded.

        After an unknown outcome the attempt is remembered, and the next flush looks for it first.
        """
        last_seen = self._wal.last_wal_id

        def change(stored: RegionManifest) -> RegionManifest | None:
            # An attempt without a reply can land at any time before this version does.
            if self._recorded_attempt(stored) is not None:
                return None
            return record_flush(stored, written, last_wal_id, last_seen)

        self._attempts.append(written)
        try:
            stored = self._manifests.update(self._state.ownership.region_id, change, check=self._state.ownership.check)
        except MemwalError as error:
            if not isinstance(error, CommitUnknownError):
                self._attempts.remove(written)
            raise
        return self._release(waiting, stored, self._recorded_attempt(stored) or written)

    def _settled(self, waiting: Waiting) -> FlushedGeneration | None:
        """Return the record of an attempt whose reply was lost; None if none of them is recorded."""
        if not self._attempts:
            return None
        stored = self._manifests.load(self._state.ownership.region_id)
        self._state.ownership.check(stored)
        found = self._recorded_attempt(stored)
        return self._release(waiting, stored, found) if found is not None else None

    def _recorded_attempt(self, stored: RegionManifest) -> FlushedGeneration | None:
        paths = {attempt.path for attempt in self._attempts}
        return next((known for known in stored.flushed_generations if known.path in paths), None)

    def _release(self, waiting: Waiting, stored: RegionManifest, record: FlushedGeneration) -> FlushedGeneration:
        """Drop a MemTable whose flush is recorded; its WAL entries stay for garbage collection."""
        self._attempts.clear()
        with self._state.lock:
            self._state.manifest = stored
            self._state.queue.release(waiting, record)
            self._state.changed.notify_all()
        return record
