"""What tells the waiting flushed MemTables from any others: while it is the same, they need no other audit. Pure."""

from __future__ import annotations

import hashlib
import json

from memwal_core.quality.plan import QualityPlan


def basis_of_audits(plan: QualityPlan, suites: str) -> str:
    """Return the basis of an audit: the flushed MemTables that wait, their defects, and the digest of suites."""
    waiting = [[audit.subject, audit.generation.uri, str(audit.generation.defect)] for audit in plan.audits]
    return hashlib.sha256(json.dumps([waiting, suites]).encode()).hexdigest()[:32]
