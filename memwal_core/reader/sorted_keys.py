"""Keys in memory, for many point lookups in one version of the base table or one flushed MemTable.

A search takes Lance some tenths of a millisecond however small it is, also for a key that no row has.
With the keys at hand such a key costs nothing, and others are one fetch by row number.
"""

from __future__ import annotations

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated

MAX_ROWS = 2 << 20
"""Rows of a base table whose keys are held: at most 16 bytes each."""


class SortedKeys:
    """Integer keys and where their rows are.

    Args:
        keys: The key column, in the order in which Lance numbers rows.
    """

    def __init__(self, keys: npt.NDArray[np.integer]) -> None:
        """Sort the keys, unless they are sorted."""
        self._offsets: npt.NDArray[np.int64] | None = None
        if len(keys) > 1 and not bool(np.all(keys[1:] >= keys[:-1])):
            self._offsets = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
            keys = keys[self._offsets]
        self._sorted = keys

    @property
    def nbytes(self) -> int:
        """What they take."""
        return int(self._sorted.nbytes) + (0 if self._offsets is None else int(self._offsets.nbytes))

    def offsets(self, keys: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the numbers of all rows that have one of some keys of the same type."""
        first = np.searchsorted(self._sorted, keys, "left")
        counts = np.searchsorted(self._sorted, keys, "right") - first
        before = np.cumsum(counts) - counts
        places = np.repeat(first - before, counts) + np.arange(counts.sum())
        found: npt.NDArray[np.int64] = places if self._offsets is None else self._offsets[places]
        return found


def can_be_held(rows: int, key: pa.Schema) -> bool:
    """Tell whether the keys of a table may be held: one integer column, and not too many."""
    return rows <= MAX_ROWS and len(key) == 1 and bool(pa.types.is_integer(key.field(0).type))


def read_base_keys(dataset: lance.LanceDataset, key: str) -> SortedKeys:
    """Read the keys of a version of the base table.

    Args:
        dataset: The version.
        key: The key column.

    Raises:
        UnavailableError: Storage failed.
    """
    with translated("read keys", dataset.uri):
        column = dataset.scanner(columns=[key], scan_in_order=True).to_table().column(0)
        return SortedKeys(column.to_numpy())
