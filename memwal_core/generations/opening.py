"""Opening the Lance table of a flushed MemTable."""

from __future__ import annotations

from collections.abc import Mapping

import lance

from memwal_core.base_table import translated


def open_generation(uri: str, storage_options: Mapping[str, str]) -> lance.LanceDataset:
    """Open a flushed MemTable's dataset at its newest version.

    Raises:
        ObjectNotFoundError: No dataset is there.
        UnavailableError: Storage failed. Try again.
    """
    with translated("open a flushed MemTable", uri):
        return lance.dataset(uri, storage_options=dict(storage_options) or None)
