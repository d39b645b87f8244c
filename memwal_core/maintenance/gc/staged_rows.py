"""Rows that tasks of a Spark batch staged for the process that writes them, left behind when that died.

A batch removes its own when it is done. One that goes on after they are gone stages its rows again.
"""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.items import Item, Kind
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.staged_keys import plan_staged
from memwal_core.maintenance.gc.state import GcState
from memwal_core.storage.layout import parse_staged_rows_path


class StagedRowFiles:
    """Deletes the staged rows of batches that staged nothing for long; shows what has another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return everything in the staging directory of batches."""
        return plan_staged(state.row_staging, parse_staged_rows_path, (Kind.STAGED_ROWS, "batch"), policy)

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; a batch that misses them takes those of its next attempt."""
        deleter.each(list(items), deleter.delete_object)
