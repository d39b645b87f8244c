"""The error of bytes that contradict their format."""

from __future__ import annotations


class MalformedError(ValueError):
    """Bytes contradict their format. Translate it where the file and its remedy are known."""
