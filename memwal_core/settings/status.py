"""The thresholds of ``memwal status --check``; part of ``memwal_core.settings``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memwal_core.settings.bounds import Count, Seconds


class Thresholds(NamedTuple):
    """The values from which a signal warns, and from which it pages: an operator must act now."""

    warn: float
    page: float


class StatusSettings(BaseModel):
    """When `memwal status --check` warns (exit code 6) and pages (exit code 7). The worst region counts.

    Lower thresholds report trouble earlier and report more false alarms. A signal never warns after it pages, so who
    raises the one above the other sets both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pending_generations_warn: Count = Field(
        default=8,
        ge=1,
        description="Number of a region's flushed MemTables that wait for their merge: warn.",
    )
    pending_generations_page: Count = Field(default=20, ge=1, description="The same: page.")
    oldest_unmerged_warn_s: Seconds = Field(
        default=1200.0, gt=0, description="Age in seconds of the oldest waiting flushed MemTable: warn."
    )
    oldest_unmerged_page_s: Seconds = Field(default=3600.0, gt=0, description="The same: page.")
    wal_lag_warn_s: Seconds = Field(
        default=1200.0,
        gt=0,
        description="Age in seconds of the oldest unflushed WAL entry: warn. Keep it above "
        "`writer.max_memtable_age_s`.",
    )
    wal_lag_page_s: Seconds = Field(default=3600.0, gt=0, description="The same: page.")
    epoch_changes_warn: Count = Field(
        default=2,
        ge=1,
        description="Claims in the last hour of a region whose previous writer had not released it: warn.",
    )
    epoch_changes_page: Count = Field(default=6, ge=1, description="The same: page.")
    index_lag_warn: Count = Field(
        default=16, ge=1, description="Number of a region's merged generations that an index does not cover: warn."
    )
    index_lag_page: Count = Field(default=48, ge=1, description="The same: page.")
    job_failures_warn: Count = Field(default=2, ge=1, description="Consecutive failures of a job: warn.")
    job_failures_page: Count = Field(default=3, ge=1, description="The same: page.")
    quarantined_generations_warn: Count = Field(
        default=1,
        ge=1,
        description="Number of a region's flushed MemTables that failed their quality checks and are kept from the "
        "merge: warn.",
    )
    quarantined_generations_page: Count = Field(default=8, ge=1, description="The same: page.")
    base_fragments_warn: Count = Field(
        default=16,
        ge=1,
        description="Number of fragments of the base table with fewer rows than `compact.target_rows`, but for those "
        "that end for their size, `compact.max_file_bytes`: warn.",
    )
    base_fragments_page: Count = Field(default=200, ge=1, description="The same: page.")
    base_versions_warn_s: Seconds = Field(
        default=2 * 72 * 3600.0,
        gt=0,
        description="Age in seconds of the oldest version of the base table that nothing needs and that is older than "
        "`compact.retention_s`: warn. Follows `retention.hours`: twice as long.",
    )
    base_versions_page_s: Seconds = Field(
        default=5 * 72 * 3600.0, gt=0, description="The same: page. Follows `retention.hours`: five times as long."
    )
    snapshot_age_warn_s: Seconds = Field(
        default=3600.0, gt=0, description="Seconds since a region first differed from the region snapshot: warn."
    )
    snapshot_age_page_s: Seconds = Field(default=86_400.0, gt=0, description="The same: page.")
    drain_time_warn_s: Seconds = Field(
        default=3600.0,
        gt=0,
        description="Seconds that merging the waiting generations would take at the rate of the last merges: warn.",
    )
    drain_time_page_s: Seconds = Field(default=21_600.0, gt=0, description="The same: page.")
    stuck_job_warn_s: Seconds = Field(
        default=300.0,
        gt=0,
        description="Seconds since a running or crashed job last renewed its lease: warn. Keep it at or above "
        "`lease.ttl_s`.",
    )
    stuck_job_page_s: Seconds = Field(default=600.0, gt=0, description="The same: page.")
    peak_memory_warn: float = Field(
        default=0.7,
        gt=0,
        description="Peak memory of a job's process in the last run, as a share of its limit: warn.",
    )
    peak_memory_page: float = Field(default=0.9, gt=0, description="The same: page.")
    garbage_warn: float = Field(
        default=0.1,
        gt=0,
        description="Bytes that `memwal gc` would act on now, as a share of the bytes of the table; what waits for its "
        "grace period does not count: warn.",
    )
    garbage_page: float = Field(default=0.4, gt=0, description="The same: page.")
    kept_warn: float = Field(
        default=0.3,
        gt=0,
        description="Bytes older than twice `retention.hours` that a tag, a setting, an index that lags or a freeze "
        "keeps, as a share of the bytes of the table: warn.",
    )
    kept_page: float = Field(default=0.8, gt=0, description="The same: page.")
    measure_garbage: bool = Field(
        default=True,
        description="Whether the check measures garbage, and what is kept. It lists every object of the table, which "
        "is slow and costs requests where there are many; `memwal gc` shows the same numbers.",
    )

    def thresholds(self) -> Mapping[str, Thresholds]:
        """Return the thresholds by the name of their signal."""
        return {
            warn.partition("_warn")[0]: Thresholds(getattr(self, warn), getattr(self, warn.replace("_warn", "_page")))
            for warn in type(self).model_fields
            if "_warn" in warn
        }

    @model_validator(mode="after")
    def _warns_first(self) -> Self:
        for name, (warn, page) in self.thresholds().items():
            if warn > page:
                raise ValueError(f"{name} would warn at {warn:g}, after it pages at {page:g}")
        return self
