"""What a region writer counts: a snapshot for callers, and OpenTelemetry instruments.

The OpenTelemetry API does nothing until the process installs an SDK. Histograms carry no table or
region label, so that their number of series stays fixed; gauges carry the region, because a growing
queue must be traced to its region.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from opentelemetry import metrics

from memwal_core.writer.flushing.rotation import RotationReason

METER_NAME = "memwal_core.writer"

ROWS = "memwal.writer.rows"
PUTS = "memwal.writer.puts"
WAL_ENTRIES = "memwal.writer.wal.entries"
WAL_BYTES = "memwal.writer.wal.bytes"
WAL_FAILURES = "memwal.writer.wal.failures"
WAL_LATE_ENTRIES = "memwal.writer.wal.late_entries"
WAL_GROUP_PUTS = "memwal.writer.wal.puts_per_entry"
WAL_DURATION = "memwal.writer.wal.duration"
ROTATIONS = "memwal.writer.memtable.rotations"
FLUSHES = "memwal.writer.flush.completed"
FLUSH_FAILURES = "memwal.writer.flush.failures"
FLUSH_DURATION = "memwal.writer.flush.duration"
FLUSH_DISCARDED_ROWS = "memwal.writer.flush.discarded_rows"
BACKPRESSURE_WAITS = "memwal.writer.backpressure.waits"
BACKPRESSURE_ERRORS = "memwal.writer.backpressure.errors"
ACTIVE_BYTES = "memwal.writer.memtable.active_bytes"
QUEUED = "memwal.writer.flush.queued"
QUEUED_BYTES = "memwal.writer.flush.queued_bytes"
QUEUE_STALLED = "memwal.writer.flush.stalled"

COUNTERS = (
    ROWS,
    PUTS,
    WAL_ENTRIES,
    WAL_BYTES,
    WAL_FAILURES,
    WAL_LATE_ENTRIES,
    ROTATIONS,
    FLUSHES,
    FLUSH_FAILURES,
    FLUSH_DISCARDED_ROWS,
    BACKPRESSURE_WAITS,
    BACKPRESSURE_ERRORS,
)
HISTOGRAMS = {WAL_GROUP_PUTS: "{put}", WAL_DURATION: "s", FLUSH_DURATION: "s"}
GAUGES = {ACTIVE_BYTES: "By", QUEUED: "{memtable}", QUEUED_BYTES: "By", QUEUE_STALLED: "1"}
REGION_LABEL = "memwal.region"
REASON_LABEL = "reason"

_DISCARDED_RANGES = 64


@dataclass(frozen=True, slots=True)
class Discarded:
    """Rows of a MemTable's WAL range (both ends included) that its flush left out: later rows of it replace them."""

    first_wal_id: int
    last_wal_id: int
    rows: int


@dataclass(frozen=True, slots=True)
class WriterStats:
    """A region writer at one moment.

    Attributes:
        store_kind: Where the WAL is stored, which decides how durable it is.
        counts: Counter name -> count since the writer was opened; names are constants of this module.
        rotations: Why MemTables were frozen -> how often.
        active_bytes: Its Arrow bytes.
        pending_puts: Puts of all MemTables that are in no WAL entry yet.
        pending_bytes: Their Arrow bytes.
        wal_bytes: Bytes of the WAL entries of the active MemTable.
        last_wal_id: Last WAL entry known.
        wal_entries_since_flush: Entries that a recovery would replay.
        queued_bytes: Their Arrow bytes.
        oldest_queued_s: Seconds for which the oldest has waited; 0 if none waits.
        is_stalled: Whether that is longer than ``stalled_queue_s``.
        last_flush_s: Seconds that the last flush took; None before the first.
        last_flush_error: Error of the last failed flush since the last success; None if there is none.
        recovery_s: Seconds from the claim to the end of the replay.
        discarded: Rows left out by the last flushes, by WAL range, oldest first.
    """

    store_kind: str
    writer_epoch: int
    counts: Mapping[str, int]
    rotations: Mapping[RotationReason, int]
    active_generation: int
    active_rows: int
    active_bytes: int
    pending_puts: int
    pending_bytes: int
    wal_bytes: int
    last_wal_id: int
    wal_entries_since_flush: int
    queued: int
    queued_bytes: int
    flushing: bool
    oldest_queued_s: float
    is_stalled: bool
    last_flush_s: float | None
    last_flush_error: str | None
    replayed_entries: int
    recovery_s: float
    discarded: tuple[Discarded, ...]


class WriterMeters:
    """The counters of one writer, passed on to OpenTelemetry. Safe to call from several threads."""

    def __init__(self, region: str, meter: metrics.Meter | None = None) -> None:
        chosen = meter if meter is not None else metrics.get_meter(METER_NAME)
        self._region = {REGION_LABEL: region}
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._rotations: Counter[RotationReason] = Counter()
        self._discarded: deque[Discarded] = deque(maxlen=_DISCARDED_RANGES)
        self._counters = {name: chosen.create_counter(name) for name in COUNTERS}
        self._histograms = {name: chosen.create_histogram(name, unit=unit) for name, unit in HISTOGRAMS.items()}
        self._gauges = {name: chosen.create_gauge(name, unit=unit) for name, unit in GAUGES.items()}
        self.last_flush_s: float | None = None
        self.last_flush_error: str | None = None
        self.replayed_entries = 0
        self.recovery_s = 0.0

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name] += amount
        self._counters[name].add(amount)

    def rotated(self, reason: RotationReason) -> None:
        """Count a rotation."""
        with self._lock:
            self._rotations[reason] += 1
            self._counts[ROTATIONS] += 1
        self._counters[ROTATIONS].add(1, {REASON_LABEL: reason.value})

    def record(self, name: str, value: float) -> None:
        """Add a value to a histogram."""
        self._histograms[name].record(value)

    def gauge(self, name: str, value: float) -> None:
        """Set a gauge of this region."""
        self._gauges[name].set(value, self._region)

    def discarded_rows(self, discarded: Discarded) -> None:
        """Record the rows that a flush left out."""
        with self._lock:
            self._discarded.append(discarded)
        self.count(FLUSH_DISCARDED_ROWS, discarded.rows)

    def counts(self) -> dict[str, int]:
        """Return all counters."""
        with self._lock:
            return {name: self._counts[name] for name in COUNTERS}

    def rotations(self) -> dict[RotationReason, int]:
        """Return how often MemTables were frozen, by reason."""
        with self._lock:
            return dict(self._rotations)

    def discarded(self) -> tuple[Discarded, ...]:
        """Return what the last flushes left out."""
        with self._lock:
            return tuple(self._discarded)
