"""Flushed MemTables that were opened to plan a merge, cached for reading their rows in the same process."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from memwal_core.flushed.read import open_generation

_MOST = 1024


class OpenedGenerations:
    """Opens flushed MemTables, and caches what a survey opened until its rows are read. Safe for threads.

    Opening takes a listing and a manifest, about half of the requests that a small generation costs. A flushed
    MemTable does not change, so a cached one stays right; one that was deleted meanwhile fails when its rows
    are read.

    Args:
        most: How many are cached; 0 caches none. Each keeps its metadata in memory.
    """

    def __init__(self, storage_options: Mapping[str, str], most: int = _MOST) -> None:
        self._storage_options = storage_options
        self._most = most
        self._kept: dict[str, lance.LanceDataset] = {}

    def __reduce__(self) -> tuple[type[OpenedGenerations], tuple[Mapping[str, str], int]]:
        """Become one that caches nothing in another process."""
        return OpenedGenerations, (self._storage_options, 0)

    def look(self, uri: str) -> lance.LanceDataset:
        """Open a generation again, and cache it for ``take`` while there is room."""
        dataset = open_generation(uri, self._storage_options)
        if uri in self._kept or len(self._kept) < self._most:
            self._kept[uri] = dataset
        return dataset

    def take(self, uri: str) -> lance.LanceDataset:
        """Return a cached generation and drop it from the cache, or open it."""
        kept = self._kept.pop(uri, None)
        return kept if kept is not None else open_generation(uri, self._storage_options)

    def forget(self) -> None:
        """Empty the cache."""
        self._kept.clear()
