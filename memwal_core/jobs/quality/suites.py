"""What tells the suites of one audit from those of any other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from memwal_core.errors import InvalidRequestError


def digest_of_suites(suites: Sequence[str]) -> str:
    """Return a digest of what the files of some suites contain now, whatever their order.

    Raises:
        InvalidRequestError: A file cannot be read.
    """
    contents = sorted({hashlib.sha256(_content(suite)).hexdigest() for suite in suites})
    return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:32]


def _content(suite: str) -> bytes:
    file = Path(suite)
    if not file.is_file():  # Nor is a pipe, which would be waited for.
        raise InvalidRequestError("the suite is not a file", remedy="name one with expectations", path=suite)
    return file.read_bytes()
