"""What readers keep in memory; part of ``memwal_core.settings``."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from memwal_core.settings.bounds import Count
from memwal_core.settings.writer import MIB


class ReadSettings(BaseModel):
    """How much memory a reader takes to read less."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    index_cache_bytes: Count = Field(
        default=1024 * MIB,
        ge=MIB,
        description="Bytes of indexes that each opened table keeps between queries; filled by what queries ask for. "
        "Should hold the BTREE of the key where many keys are looked up (20 million texts of 32 digits: 731 MiB; "
        "with a third of it 10,000 warm keys take three times as long). Smaller takes less memory.",
    )
