"""What a catch-up works with."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.failpoints import NO_FAILPOINTS, Failpoints
from memwal_core.jobs.context import Progress, unwatched
from memwal_core.jobs.outcome import CheckLease, no_lease
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.rng import Rng
from memwal_core.settings import CatchupSettings

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class CatchupContext:
    """What a catch-up works with.

    Attributes:
        check_lease: Called before each write.
        failpoints: Hit at the places of a catch-up, and of a compaction around it.
        sharing: Divides the building of segments between executors; None: this process extends.
    """

    table: BaseTable
    settings: CatchupSettings
    clock: Clock
    rng: Rng
    check_lease: CheckLease = no_lease
    failpoints: Failpoints = NO_FAILPOINTS
    sharing: Sharing | None = None
    progress: Progress = unwatched

    def back_off(self, attempt: int) -> None:
        """Wait after a lost attempt; the wait grows and spreads with each one."""
        self.clock.sleep(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S) * self.rng.random())
