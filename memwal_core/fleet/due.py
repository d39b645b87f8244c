"""Whether the cycle of a registered table is due, and what it may do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.registry import RegisteredTable

_EARLY = 0.9
"""Share of the time between two cycles after which the next is due: a minute of a schedule never comes on time."""


@dataclass(frozen=True, slots=True)
class Due:
    """Whether a cycle is due, and why."""

    is_due: bool
    why: str


def cycle_due(table: RegisteredTable, opened: OpenTable, now: datetime) -> Due:
    """Tell from the history of a table whether its next cycle is due. Reads the ledger.

    Raises:
        UnavailableError: Storage failed. Try again.
        CorruptionError: The history cannot be read.
    """
    runs = opened.ledger.history(MaintainRequest().key).runs
    if not runs:
        return Due(True, "no cycle ran yet")
    began = runs[-1].started
    # A cycle from the future is another clock's; waiting for it could take forever.
    due = not timedelta(0) <= now - began < timedelta(minutes=table.every_minutes) * _EARLY
    return Due(due, f"the last cycle began at {began:%Y-%m-%d %H:%M:%S} UTC, every {table.every_minutes:g} minutes")


def cycle_request(table: RegisteredTable, *, dry_run: bool = False, ignore_pauses: bool = False) -> MaintainRequest:
    """Return the cycle that the entry of a table allows."""
    return MaintainRequest(
        dry_run=dry_run,
        delete=table.collect_garbage,
        remove_versions=table.remove_versions,
        ignore_pauses=ignore_pauses,
    )
