"""How region writers buffer, persist and flush; part of ``memwal_core.settings``."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Count, Seconds

KIB = 1024
MIB = 1024 * 1024

LONGEST_EPOCH_CHECK_S = 3600.0
"""No writer acknowledges by an older look at its epoch, whatever the settings of its process."""


class Takeover(StrEnum):
    """What to do about a writer that owns a wanted region."""

    FAIL = "fail"
    """Leave it alone and raise."""
    FENCE = "fence"
    """Claim the region, which stops it."""


class WriterSettings(BaseModel):
    """How a region writer buffers, persists and checks its right to write."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    durable_write: bool = Field(
        default=True,
        description="A put returns only when its rows are in the WAL. Off: puts are faster, and a crash loses "
        "buffered rows.",
    )
    indexed_write: bool = Field(
        default=False,
        description="A put returns only when its rows are in the MemTable's key index, key filter and maintained "
        "indexes. Off: puts are faster; a key lookup indexes the new rows first, and other queries scan them.",
    )
    memtable_index: Literal["hash", "ordered"] = Field(
        default="hash",
        description="Key index of MemTables. `hash`: constant-time lookups, range scans sort. `ordered`: stays "
        "sorted for frequent range scans, and takes more memory.",
    )
    new_region_codec: Literal["lance", "arrow"] = Field(
        default="lance",
        description="WAL codec of regions that a table writer creates; a region keeps its own. `lance`: flushes copy "
        "no rows. `arrow`: pylance's own writer can take the region over, and flushes copy the rows.",
    )
    takeover_quiet_s: Seconds = Field(
        default=300.0,
        ge=0,
        description="Seconds without a sign of life after which a writer that did not release its region counts as "
        "dead for a table writer that must not fence others. Shorter: a slow writer may be fenced; longer: a crashed "
        "writer's regions stay unavailable longer.",
    )
    schema_check_interval_s: Seconds = Field(
        default=5.0,
        ge=0,
        description="Seconds after which a table writer checks again whether the base table's schema has changed. "
        "Shorter: schema changes are followed sooner, with more requests.",
    )
    epoch_check_interval_s: float = Field(
        default=10.0,
        gt=0,
        le=LONGEST_EPOCH_CHECK_S,
        description="A durable put is acknowledged only if the epoch was verified within this many seconds. Larger: "
        "fewer requests, and WAL garbage must be kept longer.",
    )
    max_memtable_bytes: Count = Field(
        default=64 * MIB,
        ge=1,
        description="Arrow bytes after which a MemTable is flushed. Larger: fewer generations, longer recovery, more "
        "memory.",
    )
    pack_below_bytes: Count = Field(
        default=64 * KIB,
        ge=0,
        description="Neighbouring WAL entries smaller than this many bytes are written again at flush, as one file. "
        "Larger: fewer files to open for each reader and merge, and more bytes written at flush. 0 shares every entry.",
    )
    max_memtable_rows: Count = Field(
        default=1_000_000,
        ge=1,
        description="Rows after which a MemTable is flushed. Larger: fewer generations, longer recovery, more memory.",
    )
    max_memtable_age_s: Seconds = Field(
        default=600.0,
        gt=0,
        description="Seconds after its first row at which a MemTable is flushed, so that the rows of an idle region "
        "are merged, too. Smaller: fresher base table, more small generations.",
    )
    max_buffered_bytes: Count = Field(
        default=512 * MIB,
        ge=1,
        description="Arrow bytes that the active MemTables of a table writer's regions may hold together; above, the "
        "region with the largest one flushes it, and a region whose flush queue is full takes no rows. What waits for "
        "its flush is bounded for each region. Larger: more memory, fewer small generations.",
    )
    wal_flush_bytes: Count = Field(
        default=4 * MIB,
        ge=1,
        description="Without `durable_write`: Arrow bytes of buffered rows after which a WAL entry is written. Larger: "
        "fewer requests, and more rows lost in a crash.",
    )
    wal_flush_puts: Count = Field(
        default=1000,
        ge=1,
        description="Without `durable_write`: buffered puts after which a WAL entry is written. Larger: fewer "
        "requests, and more rows lost in a crash.",
    )
    wal_flush_interval_s: Seconds = Field(
        default=1.0,
        gt=0,
        description="Without `durable_write`: seconds after which buffered rows are written to the WAL. Larger: fewer "
        "requests, and more rows lost in a crash.",
    )
    background_flush: bool = Field(
        default=True,
        description="Threads of the writer write the WAL entries of non-durable puts and flush full MemTables. Off: "
        "the put that reaches a limit does the work itself, which is deterministic and slower for that caller.",
    )
    max_queued_memtables: Count = Field(
        default=4,
        ge=1,
        description="Full MemTables that may wait for their flush before puts have to wait. More: longer bursts are "
        "absorbed, with more memory and longer recovery.",
    )
    max_queued_bytes: Count = Field(
        default=256 * MIB,
        ge=1,
        description="Arrow bytes of waiting MemTables before puts have to wait. More: longer bursts are absorbed, with "
        "more memory and longer recovery.",
    )
    backpressure_timeout_s: Seconds = Field(
        default=30.0,
        ge=0,
        description="Seconds that a put waits for room in the flush queue before it is refused with nothing written. "
        "Longer: fewer refusals during bursts, and callers notice slow flushes later.",
    )
    flush_retry_wait_s: float = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="First wait in seconds after a failed background flush; doubles with each failure. Shorter: faster "
        "recovery, more load on a failing store.",
    )
    flush_retry_wait_max_s: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="Longest wait in seconds between failing background flushes. Longer: less load on a failing store, "
        "later recovery.",
    )
    stalled_queue_s: Seconds = Field(
        default=300.0,
        gt=0,
        description="Age in seconds of the oldest waiting MemTable at which the flush queue is reported as stalled. "
        "Smaller: earlier warnings, and warnings about flushes that are merely slow.",
    )
    key_filter_false_positives: float = Field(
        default=0.001,
        gt=0,
        lt=0.5,
        description="Share of absent keys that a flushed MemTable's key filter lets pass. Smaller: fewer useless "
        "lookups, larger filters (about 2 bytes per key at 0.001).",
    )
    max_open_regions: Count = Field(
        default=8,
        ge=1,
        description="Regions that a table writer writes at the same time, one thread each. More: higher throughput "
        "with many regions, more memory and requests at once.",
    )
