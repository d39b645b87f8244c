"""The leases of a run's work, whatever its job: of a merge one for the table, of other jobs one per piece of work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from memwal_core.maintenance.jobs import JobKey
from memwal_core.tasks import merge, steps
from memwal_core.tasks.targets import Target


class WantedLease(TypedDict):
    """One lease that a run wants.

    Attributes:
        target: The table.
        job: Of its key.
        scope: Of its key.
    """

    target: Target
    job: str
    scope: str


def hold(items: Sequence[Any], holder: str) -> list[Any]:
    """Take the leases of a run's work, all or none.

    Args:
        items: Of ``tasks.merge`` or of ``tasks.steps``.
        holder: The run's id.

    Returns:
        The work with its tickets.

    Raises:
        LeaseHeldError: Another run has one of the leases. None is kept; try again later.
        UnavailableError: Storage failed. Try again.
    """
    return list(steps.hold_leases(items, holder) if _are_steps(items) else merge.hold_lease(items, holder))


def give_up(items: Sequence[Any]) -> list[str]:
    """Give the leases of a run's work back.

    Args:
        items: As ``hold`` returned them.

    Returns:
        The tickets that were given back; the others were lost before, or end by themselves.
    """
    return steps.release_leases(items) if _are_steps(items) else merge.release_lease(items)


def wanted_leases(items: Sequence[Any]) -> list[WantedLease]:
    """Return what the work of a run leases.

    Args:
        items: Of ``tasks.merge`` or of ``tasks.steps``.
    """
    keys = [steps.key_of(item) if "job" in item else JobKey("merge") for item in items]
    found = []
    for item, key in zip(items, keys, strict=True):
        wanted = WantedLease(target=item["target"], job=key.job, scope=key.scope)
        if wanted not in found:
            found.append(wanted)
    return found


def _are_steps(items: Sequence[Any]) -> bool:
    return bool(items) and "job" in items[0]
