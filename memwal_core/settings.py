"""Settings: values only, read once by an entry point and passed down, never at import.

Sources, later wins: defaults, environment (``MEMWAL_`` prefix, ``__`` between levels, for
example ``MEMWAL_MERGE__MAX_BYTES``), arguments of the caller. Unknown names are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from memwal_core.errors import InvalidRequestError

ENVIRONMENT_PREFIX = "MEMWAL_"
MIB = 1024 * 1024


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


class WriterSettings(_Section):
    """How a region writer buffers, persists and checks its right to write."""

    durable_write: bool = Field(
        default=True,
        description="A put returns only when its rows are in the WAL. Off: faster, a crash loses what was buffered.",
    )
    epoch_check_interval_s: float = Field(
        default=10.0,
        gt=0,
        le=3600,
        description="A durable put is acknowledged only if the epoch was verified within this many seconds. Larger "
        "saves requests, and WAL garbage must be kept longer.",
    )
    max_memtable_bytes: int = Field(
        default=64 * MIB,
        ge=1,
        description="Arrow bytes after which a MemTable is flushed. Larger: fewer generations, longer recovery, more "
        "memory.",
    )
    max_memtable_rows: int = Field(default=1_000_000, ge=1, description="Rows after which a MemTable is flushed.")
    max_open_regions: int = Field(
        default=8, ge=1, description="Regions that a table writer writes at the same time, one thread each."
    )


class MergeSettings(_Section):
    """What one merge pass may take on."""

    max_bytes: int = Field(
        default=1024 * MIB,
        ge=1,
        description="Arrow bytes of flushed MemTables per commit; the first generation is always taken. Larger means "
        "fewer commits and base scans, and more memory: about this much plus the de-duplicated rows.",
    )
    max_generations: int = Field(default=256, ge=1, description="Flushed MemTables per commit, over all regions.")
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Times a pass plans anew after losing the commit to somebody else."
    )
    lance_memory_pool_bytes: int = Field(
        default=2048 * MIB, ge=16 * MIB, description="Memory that Lance's query engine may use for one merge."
    )


class IndexSettings(_Section):
    """How the MemWAL index is kept."""

    inline_snapshot_threshold: int = Field(
        default=100, ge=0, description="Regions up to which the snapshot is stored inside the table manifest."
    )
    max_attempts: int = Field(default=20, ge=1, le=1000, description="Times a strict update is tried against rivals.")


class Settings(BaseSettings):
    """All settings of the platform."""

    model_config = SettingsConfigDict(
        env_prefix=ENVIRONMENT_PREFIX, env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    storage: StorageSettings = Field(default_factory=StorageSettings)
    writer: WriterSettings = Field(default_factory=WriterSettings)
    merge: MergeSettings = Field(default_factory=MergeSettings)
    index: IndexSettings = Field(default_factory=IndexSettings)


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
