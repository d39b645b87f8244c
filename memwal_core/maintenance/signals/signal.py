"""The signals that somebody on call may meet, each with its page in ``docs/runbooks``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Signal(StrEnum):
    """What can be wrong with a table."""

    PENDING_GENERATIONS = "pending_generations"
    OLDEST_UNMERGED = "oldest_unmerged"
    DRAIN_TIME = "drain_time"
    WAL_LAG = "wal_lag"
    EPOCH_CHANGES = "epoch_changes"
    GENERATION_HOLE = "generation_hole"
    PROGRESS_LOST = "progress_lost"
    CORRUPT_MANIFEST = "corrupt_manifest"
    INDEX_LAG = "index_lag"
    GARBAGE = "garbage"
    JOB_FAILURES = "job_failures"
    STUCK_JOB = "stuck_job"
    CHECK_FAILED = "check_failed"
    HELD_GENERATIONS = "held_generations"
    DUPLICATE_KEYS = "duplicate_keys"
    BASE_FRAGMENTS = "base_fragments"
    BASE_VERSIONS = "base_versions"
    SNAPSHOT_AGE = "snapshot_age"
    PEAK_MEMORY = "peak_memory"


@dataclass(frozen=True, slots=True)
class SignalFacts:
    """What a signal is.

    Attributes:
        page: Its runbook, relative to the repository.
        unit: Of its value.
        meaning: What the value counts.
    """

    page: str
    unit: str
    meaning: str


def _page(name: str) -> str:
    return f"docs/runbooks/{name}.md"


SIGNALS: Mapping[Signal, SignalFacts] = MappingProxyType(
    {
        Signal.PENDING_GENERATIONS: SignalFacts(
            _page("pending-generations"), "generations", "flushed MemTables of one region that wait for a merge"
        ),
        Signal.OLDEST_UNMERGED: SignalFacts(
            _page("oldest-unmerged"), "s", "age of the oldest flushed MemTable that waits for a merge"
        ),
        Signal.DRAIN_TIME: SignalFacts(
            _page("drain-time"), "s", "work of the last merges that what waits now would need"
        ),
        Signal.WAL_LAG: SignalFacts(_page("wal-lag"), "s", "age of the oldest WAL entry that is not flushed"),
        Signal.EPOCH_CHANGES: SignalFacts(
            _page("epoch-changes"),
            "changes",
            "claims of a region in the last hour from a writer that had not given it back",
        ),
        Signal.GENERATION_HOLE: SignalFacts(
            _page("generation-hole"), "generations", "generations of one region that should be recorded and are not"
        ),
        Signal.PROGRESS_LOST: SignalFacts(
            _page("progress-lost"), "regions", "regions whose merge progress contradicts their manifest, or is gone"
        ),
        Signal.CORRUPT_MANIFEST: SignalFacts(
            _page("corrupt-region-manifest"), "tables", "stored state that contradicts itself"
        ),
        Signal.INDEX_LAG: SignalFacts(
            _page("index-lag"), "generations", "merged generations of one region that an index does not cover"
        ),
        Signal.GARBAGE: SignalFacts(_page("garbage"), "share", "bytes that nobody needs over the bytes of the table"),
        Signal.JOB_FAILURES: SignalFacts(_page("job-failures"), "runs", "failures of one job in a row"),
        Signal.STUCK_JOB: SignalFacts(
            _page("stuck-job"), "s", "time since a job in progress, or one that died, renewed its lease"
        ),
        Signal.CHECK_FAILED: SignalFacts(
            _page("check-failed"), "checks", "checks of the base table that failed in the newest run"
        ),
        Signal.HELD_GENERATIONS: SignalFacts(
            _page("held-generations"), "generations", "flushed MemTables that failed their audit and wait for a person"
        ),
        Signal.DUPLICATE_KEYS: SignalFacts(
            _page("duplicate-keys"), "rows", "rows of the base table whose primary key another row has, too"
        ),
        Signal.BASE_FRAGMENTS: SignalFacts(
            _page("base-fragments"), "fragments", "fragments of the base table that are smaller than a rewritten one"
        ),
        Signal.BASE_VERSIONS: SignalFacts(_page("base-versions"), "versions", "retained versions of the base table"),
        Signal.SNAPSHOT_AGE: SignalFacts(_page("snapshot-age"), "s", "age of the region snapshot"),
        Signal.PEAK_MEMORY: SignalFacts(
            _page("peak-memory"), "share", "peak memory of a job's process over its limit, in its last run"
        ),
    }
)
"""Every signal."""
