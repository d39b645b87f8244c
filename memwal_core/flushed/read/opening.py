"""Opening the Lance table of a flushed MemTable."""

from __future__ import annotations

from collections.abc import Mapping

import lance
from lance.lance import _Session

from memwal_core.base_table import translated


def open_generation(
    uri: str, storage_options: Mapping[str, str], session: _Session | None = None
) -> lance.LanceDataset:
    """Open a flushed MemTable's dataset at its newest version; ``session`` shares caches with other datasets.

    Raises:
        ObjectNotFoundError: No dataset is there; it may have been merged and collected.
    """
    with translated("open a flushed MemTable", uri):
        return lance.dataset(uri, storage_options=dict(storage_options) or None, session=session)
