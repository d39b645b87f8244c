"""Settings under which everything happens within a few turns."""

from __future__ import annotations

from memwal_core.settings import (
    CompactSettings,
    FlushSettings,
    GcSettings,
    IndexSettings,
    MergeSettings,
    Settings,
    StorageSettings,
    WalCollection,
    WriterSettings,
)
from testkit.rng import seeded_rng

LONG_SLEEP_S = 4 * 24 * 3600.0
"""Longer than any retention; nothing else in the simulation takes this long."""
RETENTION_S = LONG_SLEEP_S / 2
"""Versions and leftovers that are older are given up."""

_FULL_AT: tuple[dict[str, int], ...] = ({"max_memtable_rows": 6}, {"max_memtable_bytes": 250})
"""Either bound is reached after a few writes."""
_SHARING = (0, 1, 2, 3)
"""Seeds modulo seven: in the first half of them the store has no links."""
_LINKLESS = (0, 1)
_BUFFERING = (8, 9)
"""Seeds modulo eleven in which writers may be buffered."""
_JOINED: tuple[dict[str, int], ...] = ({}, {"join_max_bytes": 0}, {"join_max_bytes": 2**40})
"""How merges are prepared in one process."""


def small_settings(seed: int = 0) -> Settings:
    """Return settings under which everything happens within a few turns.

    Args:
        seed: Chooses how merges commit, what makes a MemTable full, and whether flushes pack small WAL entries.
    """
    chosen = seeded_rng(seed)
    joined = chosen.choice(_JOINED)
    full_at = chosen.choice(_FULL_AT)
    return Settings(
        storage=StorageSettings(fsync=False, retry_wait_s=0, max_attempts=2, concurrency=1),
        writer=WriterSettings(max_queued_memtables=2, background_flush=False, epoch_check_interval_s=10).model_copy(
            update=full_at | ({"pack_below_bytes": 0} if seed % 7 in _SHARING else {})
        ),
        merge=MergeSettings(max_generations=3, max_attempts=3).model_copy(update=joined),
        index=IndexSettings(max_attempts=4, inline_snapshot_threshold=1),
        compact=CompactSettings(min_fragments=2),
        flush=FlushSettings(min_age_s=30, quiet_s=7200, concurrency=1),
        gc=GcSettings(
            grace_s=60,
            orphan_age_s=RETENTION_S,
            collect_wal=WalCollection.ALL,
            wal_min_age_s=3600,
            manifest_retention=2,
            manifest_min_age_s=RETENTION_S,
            concurrency=1,
            allow_unsafe_retention=True,
        ),
    )


def has_links(seed: int) -> bool:
    """Return whether the store of a seed has links; without them flushed MemTables name their WAL entries."""
    return seed % 7 not in _LINKLESS


def is_buffering(seed: int) -> bool:
    """Return whether the writers of a seed may be buffered."""
    return seed % 11 in _BUFFERING


def buffered(settings: WriterSettings) -> WriterSettings:
    """Return settings under which a put returns while its rows are only in memory."""
    return settings.model_copy(update={"durable_write": False, "wal_flush_puts": 4, "wal_flush_interval_s": 3600})
