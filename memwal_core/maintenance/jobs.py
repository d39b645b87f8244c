"""What one run of a background job works on: the unit of leases and of the ledger."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from memwal_core.ids import RegionId

TABLE_SCOPE = "table"
_INDEX_SCOPE = "index-"
_HASHED_SCOPE = "index."
_SAFE_NAME = re.compile(r"[0-9A-Za-z._-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """One job on one scope. Two runs with the same key would do the same work.

    Attributes:
        job: Name of the job, for example ``merge``.
        scope: ``table``, a region id, or an index.
    """

    job: str
    scope: str = TABLE_SCOPE

    @classmethod
    def of_region(cls, job: str, region_id: RegionId) -> JobKey:
        """Return the key of a job that works region by region."""
        return cls(job, str(region_id))

    @classmethod
    def of_index(cls, job: str, index_name: str) -> JobKey:
        """Return the key of a job that works index by index; names of any characters are kept apart."""
        if _SAFE_NAME.fullmatch(index_name):
            return cls(job, _INDEX_SCOPE + index_name)
        return cls(job, _HASHED_SCOPE + hashlib.sha256(index_name.encode()).hexdigest())

    def __str__(self) -> str:
        """Return the key for people, for example ``merge/table``."""
        return f"{self.job}/{self.scope}"
