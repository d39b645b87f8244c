"""The protocol of every kind of garbage: plan purely, then collect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memwal_core.jobs.gc.collecting.deleter import Deleter
from memwal_core.jobs.gc.items import Item
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import GcState


class GarbageKind(Protocol):
    """One kind of garbage. Plans ignore freezes, which are laid over all plans afterwards."""

    def plan(self, state: GcState, policy: Policy) -> list[Item]:
        """Return every item of this kind with its rule or gate. Pure."""
        ...

    def collect(self, items: Sequence[Item], deleter: Deleter) -> None:
        """Act on planned items, each after another read of what its decision rests on.

        Nothing further is begun after a ``FencedError``.
        """
        ...
