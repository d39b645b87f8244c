"""Removing rows by address, in one strict commit."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import numpy as np
import numpy.typing as npt

from memwal_core.base_table.commit.row_changes import (
    DeletionTarget,
    FragmentChange,
    describe_fragments,
    update_operation,
)
from memwal_core.base_table.commit.superseding import live_rows
from memwal_core.base_table.state import TableState
from memwal_core.base_table.table import BaseTable
from memwal_core.format.columns import ROW_NUMBER_BITS, ROW_NUMBER_MASK


def remove_rows(table: BaseTable, state: TableState, addresses: npt.NDArray[np.uint64], message: str) -> int:
    """Remove rows of a version; return the version without them. The MemWAL index stays as it is.

    Args:
        table: The table.
        state: The version that has the rows; it must still be the newest.
        addresses: Row addresses of live rows.
        message: Shown in the table's history.

    Raises:
        ConflictError: Another commit came first; nothing was removed. Look at the table again.
        CommitUnknownError: Read the table before trying again.
    """
    dataset = table.dataset(state.version)
    target = DeletionTarget(table.store, table.ids.commit_id().hex())
    changes = list(_changes(dataset, addresses, target))
    operation = update_operation(dataset, changes, ())
    return table.strict_commit(operation, read=state, change=lambda details: details, message=message).version


def _changes(
    dataset: lance.LanceDataset, addresses: npt.NDArray[np.uint64], target: DeletionTarget
) -> Iterator[FragmentChange]:
    wanted = np.sort(addresses)
    owners = (wanted >> ROW_NUMBER_BITS).astype(np.int64)
    fragments = {fragment.fragment_id: fragment for fragment in describe_fragments(dataset)}
    for number in np.unique(owners).tolist():
        fragment = fragments[number]
        live = live_rows(dataset, fragment)
        gone = np.zeros(fragment.physical_rows, dtype=bool)
        gone[(wanted[owners == number] & ROW_NUMBER_MASK).astype(np.int64)] = True
        gone &= live
        if gone.any():
            yield target.remove(dataset.version, fragment, live=live, gone=gone)
