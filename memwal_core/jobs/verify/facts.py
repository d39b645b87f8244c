"""What the ledger remembers of verifications, whichever job made them."""

from __future__ import annotations

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import CorruptionError

DUPLICATES_FACT = "duplicate_keys"
"""Fact of a verification: rows beyond the first of each primary key."""

VERIFY = JobKey("verify")
"""The proof after a merge, and the job of that name, as the ledger knows them."""


def duplicates_in(error: CorruptionError) -> dict[str, object]:
    """Return the fact that an error of repeated keys amounts to; nothing for other errors."""
    rows, keys = error.facts.get("rows"), error.facts.get("keys")
    return {DUPLICATES_FACT: rows - keys} if isinstance(rows, int) and isinstance(keys, int) else {}
