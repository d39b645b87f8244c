"""From which size a scheduler hands a job to Spark; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Count
from memwal_core.settings.writer import MIB


class DispatchSettings(BaseModel):
    """What a worker of Airflow does itself. A job above one of the bounds becomes a Spark application.

    A worker is shared by all tables, and starting an application takes seconds. With all bounds at 0, everything that
    has anything to do becomes an application.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_bytes: Count = Field(
        default=64 * MIB,
        ge=0,
        description="Bytes of rows or files that a worker reads or rewrites. Larger: fewer applications are started, "
        "and workers need more memory.",
    )
    max_regions: Count = Field(
        default=128,
        ge=0,
        description="Regions that a worker reads. Larger: fewer applications are started, and workers are busy longer.",
    )
    max_objects: Count = Field(
        default=10_000,
        ge=0,
        description="Objects that a worker lists, judges or deletes. Larger: fewer applications are started, and "
        "workers are busy longer.",
    )
