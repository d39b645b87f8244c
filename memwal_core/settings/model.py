"""Settings: values only, read once by an entry point and passed down, never at import.

Sources, later wins: defaults, environment (``MEMWAL_`` prefix, ``__`` between levels, for
example ``MEMWAL_MERGE__MAX_BYTES``), arguments of the caller. Unknown names are refused.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from memwal_core.errors import InvalidRequestError
from memwal_core.settings.bounds import Count, Seconds
from memwal_core.settings.dispatch import DispatchSettings
from memwal_core.settings.executors import ExecutorSettings
from memwal_core.settings.fleet import FleetSettings
from memwal_core.settings.flushing import FlushSettings
from memwal_core.settings.page import PageSettings
from memwal_core.settings.reading import ReadSettings
from memwal_core.settings.retention import CompactSettings, GcSettings, RetentionSettings
from memwal_core.settings.similar import meant, problem_of
from memwal_core.settings.status import StatusSettings
from memwal_core.settings.writer import MIB, WriterSettings

ENVIRONMENT_PREFIX = "MEMWAL_"
_OF_KUBERNETES = re.compile(
    r"MEMWAL(_[A-Z0-9]+)*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9]+)*|PORT(_\d+_[A-Z]+(_PROTO|_PORT|_ADDR)?)?)"
)
"""What every pod is told of a Service whose name begins with ``memwal``."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StorageSettings(_Section):
    """How objects are written and retried."""

    fsync: bool = Field(
        default=True,
        description="On a local disk, durable writes also sync file and directory. Off: 0.3 to 1.4 ms faster per "
        "write, and a power failure may lose acknowledged rows.",
    )
    unproven_lance: bool = Field(
        default=False,
        description="Work with a version of pylance that this package was not proven with. It may write tables that no "
        "version reads.",
    )
    concurrency: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Concurrent requests of a job, a read or a look when many objects are read. More hides latency and "
        "takes more memory and threads.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        le=50,
        description="Attempts of one request before the store counts as unavailable. More survives longer outages, and "
        "callers learn of them later.",
    )
    retry_wait_s: float = Field(
        default=0.05,
        ge=0,
        le=60,
        description="First wait between attempts in seconds; doubles, with jitter. Shorter recovers faster and puts "
        "more load on a failing store.",
    )
    retry_wait_max_s: float = Field(
        default=5.0,
        ge=0,
        le=600,
        description="Longest wait between attempts in seconds. Longer puts less load on a failing store and recovers "
        "later.",
    )
    read_timeout_s: float = Field(
        default=30.0,
        ge=0.3,
        le=3600,
        description="Seconds in which every read of a remote store ends, all attempts together; two thirds of it for "
        "one request, of any kind, to the store. An endpoint that accepts connections and never answers is an error "
        "after that time, and so is one whose answers, one after the other, all take more than a sixth of it (and than "
        "what they fetch explains). A write without an answer is repeated once. Longer lets slower lines fetch large "
        "objects, and an outage is noticed later.",
    )


class MergeSettings(_Section):
    """What one merge pass may take on."""

    max_bytes: Count = Field(
        default=1024 * MIB,
        ge=1,
        description="Arrow bytes of flushed MemTables per commit; the first generation is always taken. Larger means "
        "fewer commits and base table scans, and more memory: about this much plus the de-duplicated rows.",
    )
    max_generations: Count = Field(
        default=4096,
        ge=1,
        description="Flushed MemTables per commit, over all regions. Each pass reads all manifests and scans the base "
        "table's keys, so more per commit means fewer such scans; fewer per commit means less work to repeat after a "
        "conflict.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Times a pass plans again after a conflict with another commit. More survives more rivals, and "
        "fails later.",
    )
    lance_memory_pool_bytes: Count = Field(
        default=2048 * MIB,
        ge=16 * MIB,
        description="Bytes of memory that Lance's query engine may use for one merge. Too few make large merges fail, "
        "more let it exceed the memory of the process.",
    )
    join_max_bytes: Count = Field(
        default=16 * MIB,
        ge=0,
        description="Arrow bytes up to which Lance's merge-insert prepares a pass without tombstones in one process: "
        "the fastest for small passes, with all rows in memory. Above it, rows are written and looked up in units, "
        "with bounded memory.",
    )
    executors_min_bytes: Count = Field(
        default=64 * MIB,
        ge=0,
        description="Arrow bytes from which a merge with `engine` `auto` gives a pass to Spark's executors, if they do "
        "several tasks at once; the driver finishes a smaller one before they would have begun, without a Spark "
        "session. 0: every pass, also to a single executor, and the session always starts, which YARN requires of "
        "applications in cluster mode. Larger: more memory of the driver, fewer tasks.",
    )
    batch_bytes: Count = Field(
        default=16 * MIB,
        ge=64 * 1024,
        description="Arrow bytes of rows that a unit reads and writes at once. Smaller takes less memory, "
        "larger takes fewer requests.",
    )
    unit_bytes: Count = Field(
        default=256 * MIB,
        ge=1,
        description="Arrow bytes of regions that are written together as one unit of work, at least one region. "
        "Larger means fewer and larger fragments, and more to repeat when another process merges one of the regions.",
    )
    key_bytes: Count = Field(
        default=128 * MIB,
        ge=MIB,
        description="Arrow bytes of keys that a process looks up in the base table at once. Smaller takes less memory "
        "and more scans of the base table's key columns.",
    )
    search: Literal["auto", "scan"] = Field(
        default="auto",
        description="How a merge finds the base rows that it replaces. `auto`: through a zone map or BTREE on a key "
        "column if that reads less for the keys at hand, which the report shows. `scan`: reads the keys of all rows, "
        "whatever indexes there are.",
    )
    request_bytes: Count = Field(
        default=1 << 16,
        ge=0,
        description="Bytes that take as long to read as one more request takes, when ways to search are compared; on a "
        "local disk, too, where a page of an index takes its time to decode. Larger prefers few large reads, which "
        "stores with slow or dear requests need; 0 counts bytes alone.",
    )


class IndexSettings(_Section):
    """How the MemWAL index is updated."""

    inline_snapshot_threshold: Count = Field(
        default=100,
        ge=0,
        description="Number of regions up to which the snapshot is stored inside the table manifest. Larger saves "
        "readers a request and makes every table version larger.",
    )
    max_attempts: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Times a strict update is tried when other commits interfere. More survives more rivals, and fails "
        "later.",
    )
    snapshot_interval_s: Seconds = Field(
        default=0.0,
        ge=0,
        description="A region snapshot younger than this many seconds is not replaced. Smaller means that readers see "
        "new flushed MemTables sooner, and more versions of the table.",
    )


class CatchupSettings(_Section):
    """How base table indexes are extended over merged rows."""

    max_segments: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Number of segments of an index from which its next extension joins all of them into one. More "
        "means cheaper extensions and slower queries.",
    )
    max_attempts: int = Field(
        default=5,
        ge=1,
        le=100,
        description="Times an index is extended again after a conflict with another commit. More survives more rivals, "
        "and fails later.",
    )


class MergeTriggerSettings(_Section):
    """When a region is due for a merge. One trigger is enough; a merge on request needs none."""

    generations: Count = Field(
        default=8,
        ge=1,
        description="Number of flushed MemTables that wait for their merge. Fewer: faster reads, more commits.",
    )
    max_waiting_bytes: Count = Field(
        default=256 * MIB,
        ge=1,
        description="Bytes of flushed MemTables that wait for their merge. Fewer: faster reads, more commits.",
    )
    max_age_s: Seconds = Field(
        default=600.0,
        gt=0,
        description="Age in seconds of the oldest waiting flushed MemTable, so that an idle region is merged, too. "
        "Smaller: fresher base table, with more commits.",
    )
    max_read_amplification: float = Field(
        default=8.0,
        gt=0,
        description="Bytes of the base table's keys that a merge may read for each byte that it merges. While it would "
        "read more, the number of generations alone makes no region due; their bytes and their age do. Only for tables "
        "without an index on the key, whose keys take more than 16 MiB. Smaller: fewer and larger merges.",
    )
    interval_s: float = Field(
        default=30.0,
        ge=1,
        le=86_400,
        description="Seconds between two checks by a schedule whether a merge is due. Shorter: merges begin sooner, "
        "with more requests.",
    )


class LeaseSettings(_Section):
    """How background jobs avoid doing the same work twice. Safety never depends on these numbers."""

    ttl_s: float = Field(
        default=300.0,
        gt=0,
        le=86_400,
        description="Seconds until a lease ends that is not renewed. Longer: a dead job blocks its successor longer; "
        "shorter: a slow job may lose its lease.",
    )
    renew_after_s: Seconds = Field(
        default=100.0,
        gt=0,
        description="Seconds after the last renewal at which the next is due; below `ttl_s`. Shorter: more requests, "
        "and more time to retry a failed renewal.",
    )
    expiry_margin_s: float = Field(
        default=15.0,
        ge=0,
        le=3600,
        description="Seconds for which another job's lease must have expired before it is taken: how far clocks may "
        "differ. Longer: a dead job blocks its successor longer.",
    )
    stall_s: Seconds = Field(
        default=600.0,
        gt=0,
        description="Seconds without completed work after which a job no longer renews, so that a hung job loses its "
        "lease although its process is alive. Must exceed the longest step of a job; longer: a hung job blocks its "
        "successor longer.",
    )
    max_attempts: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Attempts to write a lease when other jobs write it at the same time. More survives more rivals, "
        "and fails later.",
    )

    @model_validator(mode="after")
    def _renewed_in_time(self) -> Self:
        if self.renew_after_s >= self.ttl_s:
            raise ValueError(f"renew_after_s is {self.renew_after_s:g}, not below ttl_s, which is {self.ttl_s:g}")
        return self


class LedgerSettings(_Section):
    """How much of past runs is recorded, and when a failing job pauses."""

    max_runs: int = Field(
        default=200,
        ge=10,
        le=5000,
        description="Number of runs recorded per job, and per region for jobs that work per region. More: longer "
        "history, and more bytes per run.",
    )
    failures_before_cooldown: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Consecutive failures after which a job pauses. More: more attempts are spent on a lasting fault.",
    )
    cooldown_s: Seconds = Field(
        default=600.0,
        gt=0,
        description="First pause in seconds; doubles with each failure. Longer: fewer futile attempts, later recovery.",
    )
    cooldown_max_s: Seconds = Field(
        default=21_600.0, gt=0, description="Longest pause in seconds. Longer: fewer futile attempts, later recovery."
    )


class DoctorSettings(_Section):
    """How much `memwal doctor` examines, and what counts as a problem."""

    sample_keys: Count = Field(
        default=10_000,
        ge=0,
        description="Keys per region that are compared with other regions; 0 = none. More finds rarer duplicates, and "
        "takes longer.",
    )
    sample_rows: Count = Field(
        default=1_000_000,
        ge=0,
        description="Rows per region from which the keys are drawn, the newest first. More reaches older rows, and "
        "takes longer.",
    )
    history: int = Field(
        default=20,
        ge=1,
        le=1000,
        description="Number of versions of the table and of each region that are compared. More reaches further back, "
        "and takes longer.",
    )
    orphan_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the bytes of a region above which its orphans (see `gc.orphan_age_s`) become a finding.",
    )
    retrain_imbalance_threshold: float = Field(
        default=10.0,
        ge=1,
        description="Ratio of the largest to the smallest partition of a vector index above which retraining is "
        "proposed. An index is never retrained in place.",
    )


class QualitySettings(_Section):
    """How much the data-quality checks examine."""

    sample_keys: int = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Values per index whose indexed answer is compared with a scan. More finds rarer damage, and "
        "takes longer.",
    )
    history: int = Field(
        default=50,
        ge=2,
        le=10_000,
        description="Number of newest versions of the table among which the last merge is searched. More takes longer.",
    )
    verify_every_s: Seconds = Field(
        default=3600.0,
        ge=0,
        description="Seconds between two counts of all keys in a table's cycle, each only after merges. Longer: less "
        "reading of large tables, and keys that occur twice are found later.",
    )


class IngestSettings(_Section):
    """How batches are written through regions."""

    put_bytes: Count = Field(
        default=16 * MIB,
        ge=1,
        description="Arrow bytes of rows that become one WAL entry. Larger: fewer requests, and more memory per task.",
    )
    in_process_bytes: Count = Field(
        default=64 * MIB,
        ge=0,
        description="Bytes of local Parquet files or of Lance tables, on disk and once read, up to which a command "
        "writes a batch by itself instead of with Spark. More: fewer batches wait for Spark to start, and a process "
        "needs up to eight times as much memory. 0: always Spark.",
    )
    rival_wait_s: Seconds = Field(
        default=60.0,
        ge=0,
        description="Seconds without a sign of life after which an attempt that was overtaken by another attempt of "
        "the same batch stops waiting for it and is repeated. Shorter: a dead attempt delays the batch less; longer: "
        "fewer needless repetitions.",
    )
    progress_interval_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Seconds between two checks how many regions have their rows. Shorter: fresher progress, more "
        "requests.",
    )


class Settings(BaseSettings):
    """All settings of the platform."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", env_parse_none_str="null", frozen=True, extra="forbid"
    )

    storage: StorageSettings = Field(default_factory=StorageSettings)
    retention: RetentionSettings = Field(default_factory=RetentionSettings)
    writer: WriterSettings = Field(default_factory=WriterSettings)
    flush: FlushSettings = Field(default_factory=FlushSettings)
    read: ReadSettings = Field(default_factory=ReadSettings)
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
    executors: ExecutorSettings = Field(default_factory=ExecutorSettings)
    dispatch: DispatchSettings = Field(default_factory=DispatchSettings)
    fleet: FleetSettings = Field(default_factory=FleetSettings)
    page: PageSettings = Field(default_factory=PageSettings)

    @model_validator(mode="after")
    def _follow_retention(self) -> Self:
        for name, values in self.retention.derived().items():
            section: BaseModel = getattr(self, name)
            own = {key: value for key, value in values.items() if key not in section.model_fields_set}
            # Checked again: a threshold that follows may meet one that was set.
            followed = type(section).model_validate({**section.model_dump(exclude_unset=True), **own})
            object.__setattr__(self, name, followed)
        return self


def load_settings() -> Settings:
    """Return the settings of the process environment, parsed anew when a variable changes.

    Raises:
        InvalidRequestError: A value is out of bounds, or a ``MEMWAL_`` variable is unknown.
    """
    # Parsing takes as long as several requests to a local disk.
    names = [name for name in os.environ if name.upper().startswith(ENVIRONMENT_PREFIX)]
    return _settings_of(frozenset((name, os.environ.get(name, "")) for name in names))


@lru_cache(maxsize=1)
def _settings_of(variables: frozenset[tuple[str, str]]) -> Settings:
    known = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    for name, _ in sorted(variables):
        if name.upper().split("__")[0] not in known and not _OF_KUBERNETES.fullmatch(name):
            raise _unknown(name)
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            raise _unknown(ENVIRONMENT_PREFIX + "__".join(map(str, first["loc"])).upper()) from error
        raise InvalidRequestError(
            "the value of a setting cannot be used",
            remedy="correct the MEMWAL_ variable; docs/settings.md gives its bounds",
            setting=".".join(str(part) for part in first["loc"]),
            problem=problem_of(first),
            value=first.get("input"),
        ) from error
    except SettingsError as error:
        raise InvalidRequestError(
            "the value of a setting cannot be used",
            remedy=f"name one setting of the section, as in {ENVIRONMENT_PREFIX}MERGE__MAX_BYTES",
            problem=str(error),
        ) from error


def _unknown(variable: str) -> InvalidRequestError:
    return InvalidRequestError(
        "the environment variable is not a setting",
        remedy=f"correct the name{meant(variable, Settings, ENVIRONMENT_PREFIX)}; docs/settings.md lists all settings",
        variable=variable,
    )
