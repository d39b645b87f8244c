"""Rows of one dataset by row id."""

from __future__ import annotations

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from memwal_core.base_table import translated
from memwal_core.format.columns import ROW_ID
from memwal_core.native.casting import no_rows


def rows_of(dataset: lance.LanceDataset, ids: npt.NDArray[np.uint64], columns: tuple[str, ...]) -> pa.Table:
    """Return rows in the order of ``ids``, which are distinct and all exist: a missing one would misalign the rest."""
    ascending = np.sort(ids)
    with translated("read rows by id", dataset.uri):
        if not len(ids):
            return no_rows(dataset.scanner(columns=list(columns)).projected_schema)
        found = dataset.scanner(
            columns=list(columns), with_row_id=True, row_addr_allowlist=serialize_row_addrs(ascending.tolist())
        ).to_table()
    order = np.argsort(found.column(ROW_ID).to_numpy())
    return found.select(list(columns)).take(pa.array(order[np.searchsorted(ascending, ids)]))
