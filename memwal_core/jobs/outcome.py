"""How a job ended, in the words and exit codes that all jobs share."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from memwal_core.errors import FrozenError


class JobOutcome(StrEnum):
    """How a job ended, by what the caller does next."""

    DONE = "done"
    PLANNED = "planned"
    NOTHING_TO_DO = "nothing_to_do"
    CONFLICT = "conflict"
    FAILED = "failed"
    """Of a step of a cycle: it ended with an error, such as storage that does not answer or a full disk."""
    BLOCKED = "blocked"
    FROZEN = "frozen"
    PARTIAL = "partial"
    """Regions that need a person are left out; for all others everything is done. No failure: it is a finding."""

    @property
    def exit_code(self) -> int:
        """Exit code of the command-line tools."""
        return _EXIT_CODES[self]


_EXIT_CODES = {
    JobOutcome.DONE: 0,
    JobOutcome.PLANNED: 0,
    JobOutcome.NOTHING_TO_DO: 3,
    JobOutcome.CONFLICT: 4,
    JobOutcome.FAILED: 4,
    JobOutcome.BLOCKED: 5,
    JobOutcome.FROZEN: FrozenError.exit_code,
    JobOutcome.PARTIAL: 6,
}

CheckLease = Callable[[], None]
"""Called before each write; raises ``FencedError`` when somebody else has the lease now."""


def no_lease() -> None:
    """Work without a lease, which costs repeated work at most."""
