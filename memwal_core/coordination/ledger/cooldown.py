"""Whether a job may run now, judging from its past: a job that keeps failing pauses, longer each time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from memwal_core.coordination.ledger.history import History
from memwal_core.settings import LedgerSettings


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The answer to "may this job run now?".

    Attributes:
        retry_at: End of the pause; None if there is none.
        since_success_s: Seconds since the last run that succeeded began; None if none is remembered.
        is_open: Whether the last run has no end: it works, or its process died.
    """

    allowed: bool
    reason: str
    failures: int = 0
    retry_at: datetime | None = None
    since_success_s: float | None = None
    is_open: bool = False

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "allowed": self.allowed,
            "reason": self.reason,
            "failures": self.failures,
            "retry_at": self.retry_at.isoformat() if self.retry_at is not None else None,
        }


def judge(history: History, now: datetime, settings: LedgerSettings) -> RunVerdict:
    """Decide whether a job may run; ``now`` is in UTC."""
    succeeded = next((run.started for run in reversed(history.runs) if run.outcome.is_success), None)
    since = None if succeeded is None else (now - succeeded).total_seconds()
    is_open = bool(history.runs) and not history.runs[-1].has_ended
    return replace(_pause(history, now, settings), since_success_s=since, is_open=is_open)


def _pause(history: History, now: datetime, settings: LedgerSettings) -> RunVerdict:
    failed = history.failures_in_a_row
    if not failed:
        return RunVerdict(True, "the last run succeeded" if history.runs else "it never ran")
    last = failed[-1]
    cause = last.error or last.outcome.value
    if not last.has_ended:
        cause = "its process ended without a report"
    beyond = len(failed) - settings.failures_before_cooldown
    if beyond < 0:
        return RunVerdict(True, f"{len(failed)} failures in a row, the last: {cause}", len(failed))
    # Doubling in floats would overflow for a job that failed a thousand times.
    pause = timedelta(seconds=min(settings.cooldown_s * 2.0 ** min(beyond, 64), settings.cooldown_max_s))
    ended = last.ended or last.started
    retry_at = ended + pause
    if now >= retry_at:
        return RunVerdict(True, f"{len(failed)} failures in a row, and the pause is over", len(failed), retry_at)
    if ended > now + pause:
        # A run from the future comes from another clock; waiting for it could take forever.
        why = f"{len(failed)} failures in a row, the last by a clock that is ahead of this one"
        return RunVerdict(True, why, len(failed))
    return RunVerdict(
        False,
        f"{len(failed)} failures in a row (the last: {cause}), pausing until {retry_at:%Y-%m-%d %H:%M:%S} UTC",
        len(failed),
        retry_at,
    )
