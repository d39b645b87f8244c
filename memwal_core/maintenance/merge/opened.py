"""Flushed MemTables that were opened to plan a merge, kept for reading their rows in the same process."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from memwal_core.generations import open_generation

_MOST = 1024


class OpenedGenerations:
    """Opens flushed MemTables, and keeps what a survey opened until its rows are read.

    Opening takes a listing and a manifest, which is about half of the requests that a small
    generation costs. A flushed MemTable does not change, so what was opened stays right; one that
    was deleted meanwhile fails when its rows are read. May be used by several threads.

    Args:
        storage_options: For pylance.
        most: How many are kept; 0 keeps none. Each holds its metadata in memory.
    """

    def __init__(self, storage_options: Mapping[str, str], most: int = _MOST) -> None:
        """Keep the options; nothing is open."""
        self._storage_options = storage_options
        self._most = most
        self._kept: dict[str, lance.LanceDataset] = {}

    def look(self, uri: str) -> lance.LanceDataset:
        """Open a generation anew, and keep it for ``take`` while there is room.

        Raises:
            ObjectNotFoundError: No dataset is there.
            UnavailableError: Storage failed. Try again.
        """
        dataset = open_generation(uri, self._storage_options)
        if uri in self._kept or len(self._kept) < self._most:
            self._kept[uri] = dataset
        return dataset

    def take(self, uri: str) -> lance.LanceDataset:
        """Return a generation that was looked at, and keep it no longer; else open it.

        Raises:
            ObjectNotFoundError: No dataset is there.
            UnavailableError: Storage failed. Try again.
        """
        kept = self._kept.pop(uri, None)
        return kept if kept is not None else open_generation(uri, self._storage_options)

    def forget(self) -> None:
        """Keep nothing that was opened so far."""
        self._kept.clear()
