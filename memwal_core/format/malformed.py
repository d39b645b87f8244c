"""The error of bytes that contradict their format."""

from __future__ import annotations


class MalformedError(ValueError):
    """Bytes contradict their format. Translate it where the file and its remedy are known."""


def apparent_damage(data: bytes) -> str:
    """Say what is wrong with a file of which nothing but its bytes is known; empty if they look like content."""
    if not data:
        return "it is empty"
    if data.count(0) == len(data):
        return f"its {len(data)} bytes are all zero"
    return ""
