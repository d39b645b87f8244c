"""The protocol that every kind of garbage follows: plan purely, then collect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memwal_core.maintenance.gc.deleter import Deleter
from memwal_core.maintenance.gc.items import Item
from memwal_core.maintenance.gc.policy import Policy
from memwal_core.maintenance.gc.state import GcState


class GarbageKind(Protocol):
    """One kind of garbage. Planners know no freezes: those are laid over all plans afterwards."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every item of this kind with its rule or gate. Pure."""
        ...

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Act on planned items, each after another look at what it rests on.

        Args:
            items: Items of this kind that have an action.
            deleter: Does it, keeps count, and knows how to look again.

        Raises:
            FencedError: The right to delete is gone; nothing further was touched.
        """
        ...
