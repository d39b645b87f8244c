"""Opening the Lance table of a flushed MemTable."""

from __future__ import annotations

from collections.abc import Mapping

import lance
from lance.lance import _Session

from memwal_core.base_table import translated


def open_generation(
    uri: str, storage_options: Mapping[str, str], session: _Session | None = None
) -> lance.LanceDataset:
    """Open a flushed MemTable's dataset at its newest version.

    Args:
        uri: Where it is.
        storage_options: For pylance.
        session: A ``lance.Session``, whose caches it shares with other datasets; its own if None.

    Raises:
        ObjectNotFoundError: No dataset is there.
        UnavailableError: Storage failed. Try again.
    """
    with translated("open a flushed MemTable", uri):
        return lance.dataset(uri, storage_options=dict(storage_options) or None, session=session)
