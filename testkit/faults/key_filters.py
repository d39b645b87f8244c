"""Key filters that lie: those of files are bound to their directory, so that a copy is only ignored."""

from __future__ import annotations

from pathlib import Path

from memwal_core.key_filter import KEY_FILTER_NAME, KeyFilter


def forge_key_filter(uri: str, place: Path, source: Path) -> None:
    """Give a flushed MemTable a valid filter with the keys of another one, as a writer with a bug would."""
    here, there = (str(path.relative_to(uri)) for path in (place, source))
    filled = KeyFilter.from_bytes((source / KEY_FILTER_NAME).read_bytes(), there)
    (place / KEY_FILTER_NAME).write_bytes(filled.to_bytes(here))
