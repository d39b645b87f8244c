"""What one run of a background job works on: the unit of leases and of the ledger."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from memwal_core.storage.protocol import ObjectStore

TABLE_SCOPE = "table"
_INDEX_SCOPE = "index-"
_HASHED_SCOPE = "index."
_SAFE_NAME = re.compile(r"[0-9A-Za-z._-]{1,200}", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class JobKey:
    """One job on one scope (``table``, a region id, or an index). Two runs with the same key would do the same work."""

    job: str
    scope: str = TABLE_SCOPE

    @classmethod
    def of_index(cls, job: str, index_name: str) -> JobKey:
        """Return the key of a job that works index by index; unsafe names are hashed, so that no two share a key."""
        if _SAFE_NAME.fullmatch(index_name):
            return cls(job, _INDEX_SCOPE + index_name)
        return cls(job, _HASHED_SCOPE + hashlib.sha256(index_name.encode()).hexdigest())

    def __str__(self) -> str:
        """Return the key for people, for example ``merge/table``."""
        return f"{self.job}/{self.scope}"


def list_keys(store: ObjectStore, root: str) -> list[JobKey]:
    """Return every key that has documents below a root, sorted; ``job_directory`` says where."""
    return [
        JobKey(job, scope) for job in store.list_directories(root) for scope in store.list_directories(f"{root}/{job}")
    ]
