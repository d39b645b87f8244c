"""Rows of the base table that newer generations supersede, as a mask that Lance applies while it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from memwal_core.base_table import translated
from memwal_core.base_table.key_search import KeySearch
from memwal_core.reader.key_condition import condition_on

ROW_ID = "_rowid"
"""What Lance's masks are made of: the row address, or the stable row id in tables that have them."""

_READ_AHEAD_BYTES = 64 * 1024 * 1024
_FEW_KEYS = 1000
_INDEX_SHARE = 10_000
"""Random keys are found faster by an index than by a scan of the key columns below one in so many rows."""


@dataclass(frozen=True, slots=True)
class BaseMask:
    """Superseded rows.

    Attributes:
        row_ids: Ascending.
        blocklist: The same for the ``row_addr_blocklist`` of a scanner; None if there are none.
    """

    row_ids: npt.NDArray[np.uint64]
    blocklist: bytes | None

    @property
    def nbytes(self) -> int:
        """What it takes."""
        return int(self.row_ids.nbytes) + len(self.blocklist or b"")

    @classmethod
    def of(cls, row_ids: npt.NDArray[np.uint64]) -> BaseMask:
        """Return the mask of some rows, in any order."""
        ascending = np.sort(row_ids)
        return cls(ascending, serialize_row_addrs(ascending.tolist()) if len(ascending) else None)


def find_superseded(base: lance.LanceDataset, rows: int, keys: pa.Table, key: Sequence[str]) -> BaseMask:
    """Find the rows of the base table whose keys newer generations write or delete.

    Few keys go to an index on the key; otherwise the key columns are scanned once, without anything else.

    Args:
        base: The version that is read.
        rows: Its rows.
        keys: The keys, each once.
        key: The primary key.

    Raises:
        UnavailableError: Storage failed.
    """
    if not keys.num_rows or not rows:
        return BaseMask.of(np.empty(0, dtype=np.uint64))
    with translated("find superseded rows", base.uri):
        if keys.num_rows <= min(_FEW_KEYS, rows // _INDEX_SHARE):
            scanner = base.scanner(columns=[], filter=condition_on(keys, key), with_row_id=True)
            return BaseMask.of(scanner.to_table().column(ROW_ID).to_numpy())
        search = KeySearch(keys, key)
        found = [np.empty(0, dtype=np.uint64)]
        for batch in base.scanner(columns=list(key), with_row_id=True, io_buffer_size=_READ_AHEAD_BYTES).to_batches():
            is_hit = search.found(pa.Table.from_batches([batch]))
            if is_hit.any():
                found.append(batch.column(ROW_ID).to_numpy()[is_hit])
    return BaseMask.of(np.concatenate(found))
