"""Values as texts for people."""

from __future__ import annotations

_MIB = 1024 * 1024


def show_bytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size:,} B"
