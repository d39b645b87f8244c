"""Keys in memory, for many point lookups in one version of the base table or one flushed MemTable.

Lance takes some tenths of a millisecond for any search, even for a key that no row has. With cached keys an absent key
costs nothing and a present one is a fetch by row number.
"""

from __future__ import annotations

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.format.columns import ROW_ID

MAX_ROWS = 2 << 20
"""Largest base table whose keys are cached, at most 16 bytes per row."""


class SortedKeys:
    """Integer keys and the places of their rows.

    Args:
        keys: The key column, in the order in which Lance numbers rows.
        row_ids: Row ids to return instead of row numbers.
    """

    def __init__(self, keys: npt.NDArray[np.integer], row_ids: npt.NDArray[np.uint64] | None = None) -> None:
        self.has_row_ids = row_ids is not None
        self._offsets: npt.NDArray[np.int64] | None = None if row_ids is None else row_ids.view(np.int64)
        if len(keys) > 1 and not bool(np.all(keys[1:] >= keys[:-1])):
            order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
            self._offsets = order if self._offsets is None else self._offsets[order]
            keys = keys[order]
        self._sorted = keys

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self._sorted.nbytes) + (0 if self._offsets is None else int(self._offsets.nbytes))

    def offsets(self, keys: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the numbers, or row ids, of all rows with one of the keys, which have the column's type."""
        first = np.searchsorted(self._sorted, keys, "left")
        counts = np.searchsorted(self._sorted, keys, "right") - first
        before = np.cumsum(counts) - counts
        places = np.repeat(first - before, counts) + np.arange(counts.sum())
        found: npt.NDArray[np.int64] = places if self._offsets is None else self._offsets[places]
        return found


def can_be_cached(rows: int, key: pa.Schema) -> bool:
    """Tell whether the keys of a table may be cached: one integer column, and not too many rows."""
    return rows <= MAX_ROWS and len(key) == 1 and bool(pa.types.is_integer(key.field(0).type))


def read_base_keys(dataset: lance.LanceDataset, key: str) -> SortedKeys:
    """Read the keys of a base version, with row ids if some of its rows are deleted.

    Lance takes rows by number quickly only from a table without deletions; otherwise it first reads the deletion files
    of all fragments.
    """
    with translated("read keys", dataset.uri):
        has_deleted = any(fragment.metadata.deletion_file for fragment in dataset.get_fragments())
        rows = dataset.scanner(columns=[key], scan_in_order=True, with_row_id=has_deleted).to_table()
        keys = rows.column(key).to_numpy()
        return SortedKeys(keys, rows.column(ROW_ID).to_numpy().copy() if has_deleted else None)
