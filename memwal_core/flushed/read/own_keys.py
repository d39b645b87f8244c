"""Proving that the rows of a flushed MemTable are its own, and not those of a file that was put in its place."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa

from memwal_core.errors import CorruptionError, DamagedError, ObjectNotFoundError
from memwal_core.flushed.read.opening import store_of
from memwal_core.key_filter import KEY_FILTER_NAME, KeyFilter
from memwal_core.storage import ObjectStore

_SAMPLED = 64
"""Keys that are compared: those of another MemTable pass one by one about as often as the filter errs."""


def require_own_keys(uri: str, dataset: lance.LanceDataset, keys: pa.Table, within: ObjectStore | None = None) -> None:
    """Compare some keys with the key filter that was written along with the rows; nothing to do without a filter.

    ``within`` is as for ``open_generation``.

    A file of another flushed MemTable that has the same size and number of rows is read by Lance without an error.

    Raises:
        DamagedError: A key was never written to this flushed MemTable.
    """
    if not keys.num_rows:
        return
    store, directory = store_of(uri, dataset.latest_storage_options() or {}, within)
    try:
        found = KeyFilter.from_bytes(store.get(f"{directory}/{KEY_FILTER_NAME}"), directory)
    except (ObjectNotFoundError, CorruptionError):
        return  # Not of this project, or lost: readers do without it.
    if found.bounds.num_columns != keys.num_columns:
        return
    sample = keys.take(pa.array(np.unique(np.linspace(0, keys.num_rows - 1, _SAMPLED).astype(np.int64))))
    if not found.may_contain(sample.rename_columns(found.bounds.schema.names)).all():
        raise DamagedError.of(
            directory.split("/")[-2],
            f"{directory}/data",
            "it holds keys that were never written to this flushed MemTable: a file of another one is in its place",
        )
