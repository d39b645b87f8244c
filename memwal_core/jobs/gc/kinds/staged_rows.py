"""Rows that the tasks of a Spark batch staged for the process that writes them, left behind when that process failed.

A batch removes its own rows when it is done. A batch that continues after they are gone stages its rows again.
"""

from __future__ import annotations

from collections.abc import Sequence

from memwal_core.format.paths import parse_staged_rows_path
from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Item, Kind
from memwal_core.jobs.gc.kinds.staged_keys import plan_staged
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState


class StagedRowFiles:
    """Deletes the staged rows of batches that staged nothing for long; shows objects with another name."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return everything in the staging directory of batches."""
        return plan_staged(state.row_staging, parse_staged_rows_path, (Kind.STAGED_ROWS, "batch"), policy)

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Delete them; a batch that misses them uses those of its next attempt."""
        deleter.each(list(items), deleter.delete_object)
