"""What the ledger remembers of verifications, whichever job made them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId

DUPLICATES_FACT = "duplicate_keys"
"""Fact of a verification: rows beyond the first of each primary key."""

MERGED_FACT = "merged"
"""Fact of a count: what tells how far all regions were merged from any other state."""

VERIFY = JobKey("verify")
"""The proof after a merge, and the job of that name, as the ledger knows them."""


def duplicates_in(error: CorruptionError) -> dict[str, object]:
    """Return the fact that an error of repeated keys amounts to; nothing for other errors."""
    rows, keys = error.facts.get("rows"), error.facts.get("keys")
    return {DUPLICATES_FACT: rows - keys} if isinstance(rows, int) and isinstance(keys, int) else {}


def digest_of_progress(merged: Mapping[RegionId, int]) -> str:
    """Return what tells how far each region is merged from any other state."""
    progress = sorted((str(region_id), number) for region_id, number in merged.items())
    return hashlib.sha256(json.dumps(progress).encode()).hexdigest()[:32]
