"""The deletion mask: rows of the base table that newer generations supersede, skipped by Lance while reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from memwal_core.base_table import translated
from memwal_core.base_table.keys.search import KeySearch
from memwal_core.reader.rows.key_condition import condition_on

ROW_ID = "_rowid"
"""What Lance's masks consist of: row addresses, or stable row ids in tables that have them."""

_PREFETCH_BYTES = 64 * 1024 * 1024
_FEW_KEYS = 1000
_INDEX_SHARE = 10_000
"""An index finds random keys faster than a scan of the key columns below one key in this many rows."""


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


def find_deletion_mask(base: lance.LanceDataset, rows: int, keys: pa.Table, key: Sequence[str]) -> DeletionMask:
    """Find the base rows whose keys newer generations write or delete; ``rows`` counts the base's rows.

    Few keys go to an index on the key; otherwise one scan reads the key columns only.
    """
    if not keys.num_rows or not rows:
        return DeletionMask.of(np.empty(0, dtype=np.uint64))
    with translated("find superseded rows", base.uri):
        if keys.num_rows <= min(_FEW_KEYS, rows // _INDEX_SHARE):
            scanner = base.scanner(columns=[], filter=condition_on(keys, key), with_row_id=True)
            return DeletionMask.of(scanner.to_table().column(ROW_ID).to_numpy())
        search = KeySearch(keys, key)
        found = [np.empty(0, dtype=np.uint64)]
        for batch in base.scanner(columns=list(key), with_row_id=True, io_buffer_size=_PREFETCH_BYTES).to_batches():
            is_hit = search.found(pa.Table.from_batches([batch]))
            if is_hit.any():
                found.append(batch.column(ROW_ID).to_numpy()[is_hit])
    return DeletionMask.of(np.concatenate(found))
