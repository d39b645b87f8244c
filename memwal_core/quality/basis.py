"""What tells the waiting flushed MemTables from any others: while it is the same, they need no other audit. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from memwal_core.errors import InvalidRequestError
from memwal_core.quality.plan import QualityPlan


def basis_of_audits(plan: QualityPlan, suites: Sequence[str]) -> str:
    """Return the basis of an audit: the flushed MemTables that wait, and what the files of the suites contain now.

    Raises:
        InvalidRequestError: A file cannot be read.
    """
    waiting = [[audit.subject, audit.generation.uri] for audit in plan.audits]
    contents = [hashlib.sha256(_content(suite)).hexdigest() for suite in suites]
    return hashlib.sha256(json.dumps([waiting, contents]).encode()).hexdigest()[:32]


def _content(suite: str) -> bytes:
    file = Path(suite)
    if not file.is_file():  # Nor is a pipe, which would be waited for.
        raise InvalidRequestError("the suite is not a file", remedy="name one with expectations", path=suite)
    return file.read_bytes()
