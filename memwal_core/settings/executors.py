"""From which size jobs use executors; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Count
from memwal_core.settings.writer import MIB


class ExecutorSettings(BaseModel):
    """When a job with `engine` `auto` gives its work to Spark's executors, if it runs where there are any.

    Smaller work stays in the process that planned it, because tasks take longer to begin than it takes to end. Merges
    have a bound of their own, `merge.executors_min_bytes`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_regions: Count = Field(
        default=512,
        ge=0,
        description="Regions from which executors list and judge them. Smaller: sooner done on a cluster, and tasks "
        "that end before they were worth starting.",
    )
    min_bytes: Count = Field(
        default=512 * MIB,
        ge=0,
        description="Bytes of rows or files from which executors rewrite or read them. Smaller: sooner done on a "
        "cluster, and tasks that end before they were worth starting.",
    )
    shares_per_slot: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Shares that work is divided into, for each task that the executors run at once. More: less to "
        "repeat after an executor died, and slots that end together; fewer: less overhead.",
    )
    part_bytes: Count = Field(
        default=8 * MIB,
        ge=1,
        description="Bytes of keys that a task counts or compares at once, which it holds in memory several times. "
        "Smaller: less memory, and more that fits into a processor's cache; more, and smaller, pieces between "
        "executors.",
    )
