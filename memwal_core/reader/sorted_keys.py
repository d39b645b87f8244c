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
from memwal_core.reader.superseded import ROW_ID

MAX_ROWS = 2 << 20
"""Rows of a base table whose keys are held: at most 16 bytes each."""


class SortedKeys:
    """Integer keys and where their rows are.

    Args:
        keys: The key column, in the order in which Lance numbers rows.
        row_ids: Of the rows, if these are wanted in place of their numbers.

    Attributes:
        has_row_ids: Whether ``offsets`` returns row ids.
    """

    def __init__(self, keys: npt.NDArray[np.integer], row_ids: npt.NDArray[np.uint64] | None = None) -> None:
        """Sort the keys, unless they are sorted."""
        self.has_row_ids = row_ids is not None
        self._offsets: npt.NDArray[np.int64] | None = None if row_ids is None else row_ids.view(np.int64)
        if len(keys) > 1 and not bool(np.all(keys[1:] >= keys[:-1])):
            order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
            self._offsets = order if self._offsets is None else self._offsets[order]
            keys = keys[order]
        self._sorted = keys

    @property
    def nbytes(self) -> int:
        """What they take."""
        return int(self._sorted.nbytes) + (0 if self._offsets is None else int(self._offsets.nbytes))

    def offsets(self, keys: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Return the numbers, or row ids, of all rows that have one of some keys of the same type."""
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
    """Read the keys of a version of the base table, with row ids if some of its rows are deleted.

    Lance takes rows by number quickly only from a table without deletions: otherwise it looks at the deleted
    rows of every fragment first.

    Args:
        dataset: The version.
        key: The key column.

    Raises:
        UnavailableError: Storage failed.
    """
    with translated("read keys", dataset.uri):
        has_deleted = any(fragment.metadata.deletion_file for fragment in dataset.get_fragments())
        rows = dataset.scanner(columns=[key], scan_in_order=True, with_row_id=has_deleted).to_table()
        keys = rows.column(key).to_numpy()
        return SortedKeys(keys, rows.column(ROW_ID).to_numpy().copy() if has_deleted else None)
