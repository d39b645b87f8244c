"""Rows of one dataset by row id."""

from __future__ import annotations

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.dataset import serialize_row_addrs

from memwal_core.base_table import translated
from memwal_core.reader.superseded import ROW_ID


def rows_of(dataset: lance.LanceDataset, ids: npt.NDArray[np.uint64], columns: tuple[str, ...]) -> pa.Table:
    """Return some columns of rows by id, in the order of the ids.

    Args:
        dataset: It has the rows.
        ids: Each once.
        columns: Columns of the result.

    Raises:
        UnavailableError: Storage failed.
    """
    ascending = np.sort(ids)
    with translated("read rows by id", dataset.uri):
        found = dataset.scanner(
            columns=list(columns), with_row_id=True, row_addr_allowlist=serialize_row_addrs(ascending.tolist())
        ).to_table()
    order = np.argsort(found.column(ROW_ID).to_numpy())
    return found.select(list(columns)).take(pa.array(order[np.searchsorted(ascending, ids)]))
