"""What compaction and garbage collection rewrite, keep and delete; part of ``memwal_core.settings``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Count, Seconds
from memwal_core.settings.writer import LONGEST_EPOCH_CHECK_S, MIB

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
_DEFAULT_HOURS = 72.0
_HISTORY_S = _DEFAULT_HOURS * HOUR_S


class RetentionSettings(BaseModel):
    """How much history a table keeps: the one setting that all ages of versions, files and records follow.

    A setting that follows it says so; set by itself, it no longer does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    hours: float = Field(
        default=_DEFAULT_HOURS,
        ge=1,
        le=10 * 8760,
        description="Hours of history that a table keeps: so long its older versions can be read and restored, and a "
        "stalled writer may come back. Must exceed the longest query and the longest job. A table that is written "
        "steadily stops growing after about this time; longer takes more storage and more requests of each "
        "collection.",
    )

    @property
    def history_s(self) -> float:
        """The same in seconds."""
        return self.hours * HOUR_S

    def derived(self) -> Mapping[str, Mapping[str, float]]:
        """Return what follows, by section and setting."""
        at_least_a_day = max(self.history_s, DAY_S)
        return {
            "compact": {"retention_s": self.history_s},
            "gc": {
                "open_writer_s": self.history_s,
                "orphan_age_s": at_least_a_day,
                "wal_min_age_s": at_least_a_day,
                "manifest_min_age_s": max(self.history_s, 2 * LONGEST_EPOCH_CHECK_S),
            },
            "status": {
                "base_versions_warn_s": _LATE * self.history_s,
                "base_versions_page_s": _VERY_LATE * self.history_s,
            },
        }


_LATE, _VERY_LATE = 2.0, 5.0
"""What is older than so many times the history should have gone long ago."""


class CompactSettings(BaseModel):
    """When and how small or half-deleted fragments of the base table are rewritten, and how long versions stay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_fragments: Count = Field(
        default=16,
        ge=2,
        description="Number of neighbouring small fragments from which they are rewritten. Smaller means fewer small "
        "fragments and more rewriting of the same rows.",
    )
    target_rows: Count = Field(
        default=1_048_576,
        ge=1,
        description="Rows of a rewritten fragment. More means fewer fragments and larger rewrites.",
    )
    max_file_bytes: Count = Field(
        default=1024 * MIB,
        ge=MIB,
        description="Bytes at which a rewritten file ends before it has `target_rows` rows. Smaller means more files.",
    )
    deletion_threshold: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Share of deleted rows from which a fragment is always rewritten. Smaller means faster scans and "
        "more rewriting.",
    )
    max_source_fragments: Count = Field(
        default=32,
        ge=2,
        description="Number of fragments rewritten in one commit; on executors, more of them if they are small. More "
        "means fewer commits, more lost work after a conflict, and more memory for the addresses of their rows.",
    )
    batch_rows: Count = Field(
        default=8192, ge=1, description="Rows read at once. More is faster and takes more memory."
    )
    batch_bytes: Count = Field(
        default=8 * MIB,
        ge=1,
        description="Bytes of files read at once, at least one row: fewer rows than `batch_rows` where rows are wide. "
        "Larger takes several times as much memory.",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Groups of fragments rewritten at once. More is faster; each takes memory of its own.",
    )
    max_passes: int = Field(
        default=10,
        ge=1,
        le=1000,
        description="Largest number of commits in one run. More finishes a backlog sooner and makes a run longer.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Times a pass plans again after a conflict with another commit. More survives more rivals, and "
        "fails later.",
    )
    retention_s: Seconds = Field(
        default=_HISTORY_S,
        ge=3600,
        description="Versions younger than this many seconds are kept; follows `retention.hours`. Must exceed the "
        "longest query and the longest job: both lose the files they read when their version is removed. Longer takes "
        "more storage.",
    )
    keep_versions: Count = Field(
        default=10,
        ge=1,
        description="Number of newest versions that are kept whatever their age. More takes more storage.",
    )


class WalCollection(StrEnum):
    """Whose WAL entries a garbage collection may delete."""

    NONE = "none"
    OURS = "ours"
    ALL = "all"


class GcSettings(BaseModel):
    """How long the garbage collector keeps objects that nothing refers to.

    Ages are told by the store's clock where it is not this machine's; on a shared file system, a clock that runs ahead
    of the server's shortens them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    grace_s: float = Field(
        default=600.0,
        ge=0,
        le=7 * DAY_S,
        description="Seconds between removing a flushed MemTable from the region manifest and deleting its directory. "
        "Readers that planned before have this long to finish; longer takes more storage.",
    )
    open_writer_s: Seconds = Field(
        default=_HISTORY_S,
        ge=0,
        description="Seconds for which a merged flushed MemTable of the `arrow` codec is kept, so that the scanner of "
        "an open pylance writer still finds its rows: it reads the base table as of its opening. Follows "
        "`retention.hours`. Reopen such writers at least as often. Longer takes more storage; 0 if no writer's own "
        "scanner is used. It ends at twice this time after the flush, however late the merge was.",
    )
    orphan_age_s: Seconds = Field(
        default=_HISTORY_S,
        ge=0,
        description="Age in seconds at which leftovers of failed flushes and commits are deleted; follows "
        "`retention.hours`, and is at least a day. Longer takes more storage. Below one day it is refused without "
        "`allow_unsafe_retention`: a flush or commit may still be under way.",
    )
    collect_wal: WalCollection = Field(
        default=WalCollection.OURS,
        description="Whose WAL entries are deleted once they are flushed and no flushed MemTable consists of them. "
        "`ours`: those of regions that only this project's writers write. `all`: also those of regions that Lance's "
        "own writer may write, which acknowledges without verifying its epoch; choose it when no such writer is ever "
        "stalled for `wal_min_age_s`. `none`: entries are only listed and take storage.",
    )
    wal_min_age_s: Seconds = Field(
        default=_HISTORY_S,
        ge=0,
        description="Age in seconds below which no WAL entry is deleted; follows `retention.hours`, and is at least a "
        "day. It must exceed the longest stall of a writer that may resume; longer takes more storage, and below one "
        "day it is refused without `allow_unsafe_retention`.",
    )
    wal_epoch_checks: float = Field(
        default=6.0,
        ge=0,
        le=1_000_000,
        description="WAL entries that were written or flushed less than this many times "
        "`writer.epoch_check_interval_s` ago, and at least those of the last two hours, whatever writers have set, are "
        "kept, so that a stalled writer finds its successor's entry. Larger takes more storage. Below 2 it is refused "
        "without `allow_unsafe_retention`, with which no other writer's interval counts.",
    )
    manifest_retention: Count = Field(
        default=20,
        ge=2,
        description="Number of versions of a region manifest, or of a lease, that are kept below the newest. More "
        "keeps a longer history and more objects.",
    )
    manifest_min_age_s: Seconds = Field(
        default=_HISTORY_S,
        ge=0,
        description="Seconds for which a superseded version of a region manifest, or of the maintenance record, is "
        "kept whatever its number; follows `retention.hours`, and is at least two hours. At least `grace_s`, because "
        "versions show since when a directory is unrecorded. Longer keeps more objects. Below two hours it is refused "
        "without `allow_unsafe_retention`: older versions tell which WAL entries every writer knows to be flushed.",
    )
    register_min_age_s: Seconds = Field(
        default=HOUR_S,
        ge=0,
        description="Seconds for which superseded versions of ledgers and leases are kept. The newest version has the "
        "whole history, so longer only keeps more objects.",
    )
    concurrency: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Concurrent deletions. More finishes sooner and may run into the store's request limits.",
    )
    allow_unsafe_retention: bool = Field(
        default=False,
        description="Accept retention times that can lose acknowledged rows if a writer or job stalls. For tests, and "
        "for tables without writers.",
    )
