"""How processes of our own open a table: with the settings and storage options of their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from memwal_core.jobs.context import OpenTable
from memwal_core.settings import load_settings
from memwal_core.storage.options import environment_storage_options
from memwal_core.table import Table


def open_here(uri: str, storage_options: Mapping[str, str] | None = None, *, even_if_damaged: bool = False) -> Table:
    """Open a table with the settings and storage options of the environment, and hand Lance its memory bound.

    Args:
        uri: Path or address.
        storage_options: They go before those of the environment.
        even_if_damaged: Also open a table whose newest version cannot be read.

    Raises:
        InvalidRequestError: Settings or options cannot be used.
        ObjectNotFoundError: There is no table at the address.
    """
    options = {**environment_storage_options(), **(storage_options or {})}
    settings = load_settings()
    os.environ.setdefault("LANCE_MEM_POOL_SIZE", str(settings.merge.lance_memory_pool_bytes))
    opened = OpenTable.at(uri, storage_options=options or None, settings=settings, even_if_damaged=even_if_damaged)
    return Table(opened)
