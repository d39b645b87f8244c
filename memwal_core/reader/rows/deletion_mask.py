"""The deletion mask: rows of the base table that newer generations supersede, skipped by Lance while reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from memwal_core.reader.rows.places import find_places


@dataclass(frozen=True, slots=True)
class DeletionMask:
    """Superseded rows: ids, ascending, and as ``row_addr_blocklist`` of a scanner, None if there are none."""

    row_ids: npt.NDArray[np.uint64]
    blocklist: bytes | None

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return int(self.row_ids.nbytes) + len(self.blocklist or b"")

    @classmethod
    def of(cls, row_ids: npt.NDArray[np.uint64]) -> DeletionMask:
        """Return the mask of rows, in any order."""
        ascending = np.sort(row_ids)
        return cls(ascending, serialize_row_addrs(ascending.tolist()) if len(ascending) else None)


def find_deletion_mask(base: lance.LanceDataset, keys: pa.Table, key: Sequence[str]) -> DeletionMask:
    """Find the base rows whose keys newer generations write or delete."""
    if not keys.num_rows:
        return DeletionMask.of(np.empty(0, dtype=np.uint64))
    return DeletionMask.of(find_places(base, keys, key)[1])
