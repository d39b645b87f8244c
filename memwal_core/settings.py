"""Settings: values only, read once by an entry point and passed down, never at import.

Sources, later wins: defaults, environment (``MEMWAL_`` prefix, ``__`` between levels, for
example ``MEMWAL_MERGE__MAX_BYTES``), arguments of the caller. Unknown names are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from memwal_core.errors import InvalidRequestError
from memwal_core.status_settings import StatusSettings
from memwal_core.writer_settings import WriterSettings

__all__ = [
    "DAY_S",
    "ENVIRONMENT_PREFIX",
    "MIB",
    "CatchupSettings",
    "CompactSettings",
    "DoctorSettings",
    "GcSettings",
    "IndexSettings",
    "LeaseSettings",
    "LedgerSettings",
    "MergeSettings",
    "MergeTriggerSettings",
    "QualitySettings",
    "Settings",
    "StatusSettings",
    "StorageSettings",
    "WriterSettings",
    "load_settings",
]

ENVIRONMENT_PREFIX = "MEMWAL_"
MIB = 1024 * 1024
DAY_S = 24 * 3600.0


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageSettings(_Section):
    """How objects are written and retried."""

    fsync: bool = Field(
        default=True,
        description="On a local disk, durable writes also sync file and directory. Off: 0.3 to 1.4 ms faster per "
        "write, and a power failure may lose acknowledged rows.",
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Requests under way at once when many objects are read. More hides latency and costs memory.",
    )
    max_attempts: int = Field(
        default=5, ge=1, le=50, description="Attempts of one request before the store counts as unavailable."
    )
    retry_wait_s: float = Field(
        default=0.05, ge=0, le=60, description="First wait between attempts in seconds; doubles, with jitter."
    )
    retry_wait_max_s: float = Field(default=5.0, ge=0, le=600, description="Longest wait between attempts in seconds.")


class MergeSettings(_Section):
    """What one merge pass may take on."""

    max_bytes: int = Field(
        default=1024 * MIB,
        ge=1,
        description="Arrow bytes of flushed MemTables per commit; the first generation is always taken. Larger means "
        "fewer commits and base scans, and more memory: about this much plus the de-duplicated rows.",
    )
    max_generations: int = Field(
        default=4096,
        ge=1,
        description="Flushed MemTables per commit, over all regions. Each pass reads all manifests and scans the base "
        "table's keys, so many passes cost regions times passes; fewer per commit make its repetition cheaper after a "
        "lost race.",
    )
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Times a pass plans anew after losing the commit to somebody else."
    )
    lance_memory_pool_bytes: int = Field(
        default=2048 * MIB, ge=16 * MIB, description="Memory that Lance's query engine may use for one merge."
    )
    strategy: Literal["auto", "native", "single_commit"] = Field(
        default="auto",
        description="How a pass commits. `native`: Lance's merge-insert in one process, with tombstones in two "
        "commits. `single_commit`: fragments and deletion vectors prepared by any number of processes, then one "
        "commit. `auto`: native for small passes without tombstones in one process.",
    )
    native_max_bytes: int = Field(
        default=MIB,
        ge=0,
        description="Arrow bytes up to which `auto` merges natively, which holds all rows in memory and reads the base "
        "table's keys row by row into a join; above it `single_commit` is faster.",
    )
    executors_min_bytes: int = Field(
        default=64 * MIB,
        ge=0,
        description="Arrow bytes from which `auto` gives a pass to the executors at hand; a smaller one is done by the "
        "driver before they would have begun, without a Spark session. 0 starts the session in any case, which YARN "
        "asks of applications in cluster mode. Larger: more memory of the driver, fewer tasks.",
    )
    batch_bytes: int = Field(
        default=16 * MIB,
        ge=64 * 1024,
        description="Arrow bytes of rows that `single_commit` reads and writes at once. Smaller takes less memory, "
        "larger fewer requests.",
    )
    unit_bytes: int = Field(
        default=256 * MIB,
        ge=1,
        description="Arrow bytes of regions that are written together as one unit of work, at least one region. "
        "Larger makes fewer and larger fragments, and more to repeat when a rival merges one of the regions.",
    )
    key_bytes: int = Field(
        default=128 * MIB,
        ge=MIB,
        description="Arrow bytes of keys that a process searches the base table for at once. Smaller takes less "
        "memory and more scans of the base table's key columns.",
    )


class IndexSettings(_Section):
    """How the MemWAL index is kept."""

    inline_snapshot_threshold: int = Field(
        default=100, ge=0, description="Regions up to which the snapshot is stored inside the table manifest."
    )
    max_attempts: int = Field(default=20, ge=1, le=1000, description="Times a strict update is tried against rivals.")
    snapshot_interval_s: float = Field(
        default=0.0,
        ge=0,
        description="A region snapshot younger than this many seconds is left as it is. Smaller means that readers see "
        "new flushed MemTables sooner, and more versions of the table.",
    )


class CatchupSettings(_Section):
    """How base table indexes are extended over merged rows."""

    max_segments: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Segments of an index from which its next extension makes one of them all. More means cheaper "
        "extensions and slower queries.",
    )
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Times an index is extended again after a conflict with somebody else."
    )


class CompactSettings(_Section):
    """When and how small or half deleted fragments of the base table are rewritten, and how long versions stay."""

    min_fragments: int = Field(
        default=16,
        ge=2,
        description="Neighbouring fragments worth rewriting, below which none is. Smaller means fewer small fragments "
        "and more rewriting of the same rows.",
    )
    target_rows: int = Field(default=1_048_576, ge=1, description="Rows of a rewritten fragment.")
    max_file_bytes: int = Field(
        default=1024 * MIB, ge=MIB, description="Size at which a rewritten file is ended before it has that many rows."
    )
    deletion_threshold: float = Field(
        default=0.1, gt=0, le=1, description="Share of deleted rows from which a fragment is rewritten in any case."
    )
    max_source_fragments: int = Field(
        default=32,
        ge=2,
        description="Fragments rewritten in one commit. More means fewer commits, and more lost work after a conflict.",
    )
    batch_rows: int = Field(default=8192, ge=1, description="Rows read at once. More is faster and takes more memory.")
    threads: int = Field(
        default=1, ge=1, le=64, description="Groups of fragments rewritten at once; each has its memory."
    )
    max_passes: int = Field(default=10, ge=1, le=1000, description="Commits of one run.")
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Times a pass plans anew after losing the commit to somebody else."
    )
    retention_s: float = Field(
        default=14 * 86_400.0,
        ge=3600,
        description="Versions younger than this many seconds are kept. Must exceed the longest query and the longest "
        "job: both lose the files they read when their version goes.",
    )
    keep_versions: int = Field(default=10, ge=1, description="Newest versions that are kept whatever their age.")


class GcSettings(_Section):
    """What the garbage collector keeps although nothing refers to it, and for how long.

    Times are compared with the store's modification times: a clock that runs ahead shortens them.
    """

    grace_s: float = Field(
        default=600.0,
        ge=0,
        le=7 * DAY_S,
        description="Seconds between removing a flushed MemTable from the region manifest and deleting its directory. "
        "Readers that planned before have this long to finish; longer costs storage.",
    )
    orphan_age_s: float = Field(
        default=3 * DAY_S,
        ge=0,
        description="Age in seconds at which leftovers of failed flushes and commits are deleted. Below one day it is "
        "refused without `allow_unsafe_retention`: a flush or commit may still be under way.",
    )
    collect_wal: bool = Field(
        default=False,
        description="Delete WAL entries that nothing needs. Off, they are only listed. Switch it on when every writer "
        "of the table verifies its epoch before it acknowledges, or is never stalled for `wal_min_age_s`.",
    )
    wal_min_age_s: float = Field(
        default=7 * DAY_S,
        ge=0,
        description="Age in seconds below which no WAL entry is deleted. It must exceed the longest stall of a writer "
        "that may come back; below one day it is refused without `allow_unsafe_retention`.",
    )
    wal_epoch_checks: float = Field(
        default=6.0,
        ge=0,
        description="WAL entries younger than this many times `writer.epoch_check_interval_s` are kept, too, so that a "
        "stalled writer meets its successor's entry. Below 2 it is refused without `allow_unsafe_retention`.",
    )
    manifest_retention: int = Field(
        default=20,
        ge=2,
        description="Versions of a region manifest, or of a lease, kept below the newest. More history for people, "
        "more objects.",
    )
    manifest_min_age_s: float = Field(
        default=DAY_S,
        ge=0,
        description="Seconds for which a superseded version is kept whatever its number; at least `grace_s`, because "
        "versions tell since when a directory is unrecorded. Below one hour it is refused without "
        "`allow_unsafe_retention`.",
    )
    concurrency: int = Field(default=8, ge=1, le=64, description="Deletions under way at once.")
    allow_unsafe_retention: bool = Field(
        default=False,
        description="Accept retention times that can lose acknowledged rows if a writer or job stalls. For tests and "
        "for tables that nobody writes.",
    )


class MergeTriggerSettings(_Section):
    """When a region is due for a merge. Each trigger alone is enough; a merge that is asked for needs none."""

    generations: int = Field(
        default=8,
        ge=1,
        description="Flushed MemTables that wait for their merge. Fewer: reads touch less, and more commits are made.",
    )
    max_waiting_bytes: int = Field(
        default=256 * MIB, ge=1, description="Bytes of flushed MemTables that wait for their merge."
    )
    max_age_s: float = Field(
        default=600.0,
        gt=0,
        description="Age in seconds of the oldest flushed MemTable that waits, so that a quiet region is merged, too.",
    )
    interval_s: float = Field(
        default=30.0, ge=1, le=86_400, description="How often, in seconds, a schedule looks whether a merge is due."
    )


class LeaseSettings(_Section):
    """How background jobs keep each other from doing the same work. Safety never depends on these numbers."""

    ttl_s: float = Field(
        default=300.0,
        gt=0,
        le=86_400,
        description="Seconds until a lease ends that is not renewed. Longer: a dead job blocks its successor longer.",
    )
    renew_after_s: float = Field(
        default=100.0, gt=0, description="Seconds after the last renewal at which the next is due; below the TTL."
    )
    expiry_margin_s: float = Field(
        default=15.0,
        ge=0,
        le=3600,
        description="Seconds that a lease of somebody else must be over before it is taken: how far clocks may differ.",
    )
    stall_s: float = Field(
        default=600.0,
        gt=0,
        description="Seconds without completed work after which a job no longer renews, so that a hung job loses its "
        "lease although its process lives.",
    )
    max_attempts: int = Field(default=20, ge=1, le=1000, description="Times a lease is tried for against rivals.")

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_after_s >= self.ttl_s:
            raise ValueError("renew_after_s must be below ttl_s")
        return self


class LedgerSettings(_Section):
    """What is remembered of past runs, and when a failing job pauses."""

    max_runs: int = Field(
        default=200, ge=10, le=5000, description="Runs remembered per job, and per region where it works per region."
    )
    failures_before_cooldown: int = Field(
        default=3, ge=1, le=100, description="Failures in a row after which a job pauses."
    )
    cooldown_s: float = Field(default=600.0, gt=0, description="First pause in seconds; doubles with each failure.")
    cooldown_max_s: float = Field(default=21_600.0, gt=0, description="Longest pause in seconds.")
    keep_versions_s: float = Field(
        default=86_400.0, ge=0, description="Age in seconds at which superseded versions of the ledger may be deleted."
    )


class DoctorSettings(_Section):
    """How much `memwal doctor` looks at, and what it takes for a problem."""

    sample_keys: int = Field(
        default=10_000, ge=0, description="Keys per region that are compared with other regions; 0 = none."
    )
    sample_rows: int = Field(
        default=1_000_000, ge=0, description="Rows per region that the keys are drawn from; the newest come first."
    )
    history: int = Field(
        default=20, ge=1, le=1000, description="Versions of the table and of each region that are compared."
    )
    wal_tail_age_s: float = Field(
        default=1800.0, gt=0, description="Age in seconds at which a WAL entry that is not flushed becomes a finding."
    )
    orphan_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the bytes of a region above which orphans (see `gc.orphan_age_s`) need somebody to look.",
    )
    retrain_imbalance_threshold: float = Field(
        default=10.0,
        ge=1,
        description="Largest over smallest partition of a vector index above which retraining is proposed. Nothing is "
        "ever retrained in place.",
    )


class QualitySettings(_Section):
    """How much the data-quality checks look at."""

    sample_keys: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Values per index whose indexed answer is compared with a scan. More finds rarer damage, and "
        "takes longer.",
    )
    history: int = Field(
        default=50, ge=2, le=10_000, description="Versions of the table among which the last merge is looked for."
    )


class IngestSettings(_Section):
    """How batches are written through regions."""

    put_bytes: int = Field(
        default=16 * MIB,
        ge=1,
        description="Arrow bytes of rows that become one WAL entry. Larger: fewer requests, and more memory per task.",
    )
    rival_wait_s: float = Field(
        default=60.0,
        ge=0,
        description="Seconds without a sign of life after which an attempt that was overtaken by another attempt of "
        "the same batch gives up waiting for it and is repeated.",
    )
    progress_interval_s: float = Field(
        default=5.0, gt=0, le=3600, description="Seconds between two looks at how many regions have their rows."
    )


class Settings(BaseSettings):
    """All settings of the platform."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    storage: StorageSettings = Field(default_factory=StorageSettings)
    writer: WriterSettings = Field(default_factory=WriterSettings)
    merge: MergeSettings = Field(default_factory=MergeSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)
    catchup: CatchupSettings = Field(default_factory=CatchupSettings)
    compact: CompactSettings = Field(default_factory=CompactSettings)
    merge_triggers: MergeTriggerSettings = Field(default_factory=MergeTriggerSettings)
    lease: LeaseSettings = Field(default_factory=LeaseSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    doctor: DoctorSettings = Field(default_factory=DoctorSettings)
    gc: GcSettings = Field(default_factory=GcSettings)
    quality: QualitySettings = Field(default_factory=QualitySettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    status: StatusSettings = Field(default_factory=StatusSettings)


def load_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    Args:
        environment: Variables to check for unknown names; the process environment by default.

    Raises:
        InvalidRequestError: A value does not fit, or a ``MEMWAL_`` variable is unknown.
    """
    variables = os.environ if environment is None else environment
    known = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    for name in variables:
        if name.upper().startswith(ENVIRONMENT_PREFIX) and name.upper().split("__")[0] not in known:
            raise InvalidRequestError(
                "this environment variable is no setting",
                remedy="correct the name; docs/settings.md lists all settings",
                variable=name,
            )
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidRequestError(
            "a setting does not fit",
            remedy="correct the MEMWAL_ variable; docs/settings.md gives its bounds",
            setting=".".join(str(part) for part in first["loc"]),
            problem=first["msg"],
            value=first.get("input"),
        ) from error
