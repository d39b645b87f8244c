"""Proving that the rows of a flushed MemTable are its own, and not those of a file that was put in its place."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa

from memwal_core.errors import CorruptionError, DamagedError, ObjectNotFoundError
from memwal_core.flushed.read.opening import store_of
from memwal_core.key_filter import KEY_FILTER_NAME, KeyFilter
from memwal_core.storage import ObjectStore

_SAMPLED = 64
"""Keys that are compared: those of another MemTable pass one by one about as often as the filter errs."""


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """What tells the keys of a flushed MemTable from others: the key filter that was written along with its rows.

    Attributes:
        directory: Where it lies in its table.
        found: The filter; None if there is none, or none that can be read, and nothing is proven.
    """

    directory: str
    found: KeyFilter | None

    @classmethod
    def of(cls, uri: str, dataset: lance.LanceDataset, within: ObjectStore | None = None) -> OwnKeys:
        """Read the filter; ``within`` is as for ``open_generation``."""
        store, directory = store_of(uri, dataset.latest_storage_options() or {}, within)
        try:
            return cls(directory, KeyFilter.from_bytes(store.get(f"{directory}/{KEY_FILTER_NAME}"), directory))
        except (ObjectNotFoundError, CorruptionError):
            return cls(directory, None)  # Not of this project, or lost: readers do without it.

    def require(self, keys: pa.Table) -> None:
        """Compare some of the keys that were read with the filter.

        A file of another flushed MemTable that has the same size and number of rows is read by Lance without an error.

        Raises:
            DamagedError: A key was never written to this flushed MemTable.
        """
        if self.found is None or not keys.num_rows or self.found.bounds.num_columns != keys.num_columns:
            return
        sample = keys.take(pa.array(np.unique(np.linspace(0, keys.num_rows - 1, _SAMPLED).astype(np.int64))))
        if not self.found.may_contain(sample.rename_columns(self.found.bounds.schema.names)).all():
            raise DamagedError.of(
                self.directory.split("/")[-2],
                f"{self.directory}/data",
                "it holds keys that were never written to this flushed MemTable: a file of another one is in its place",
            )
