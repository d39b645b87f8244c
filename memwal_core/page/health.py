"""The health score: 100 less what each part costs; 0 if anything threatens rows. Pure. See docs/health-score.md."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.settings import MergeTriggerSettings

PERFECT = 100
_FULL_AT = 4.0
"""Multiple of a merge threshold from which the whole weight is lost."""
_INDEX_FULL_AT = 6
_WAL_FULL_AT = 64
_FAILURES_FULL_AT = 3
_SNAPSHOT_FULL_AT_S = 3600.0


@dataclass(frozen=True, slots=True)
class HealthPart:
    """What one concern costs.

    Attributes:
        name: The concern.
        weight: What it costs at worst.
        lost: What it costs now, 0 to ``weight``.
        reason: The facts, for people.
    """

    name: str
    weight: int
    lost: int
    reason: str


@dataclass(frozen=True, slots=True)
class Health:
    """A score with its parts.

    Attributes:
        score: 0 (rows are in danger or everything is late) to 100.
        danger: Why the score is 0 whatever the parts say; empty if there is no such reason.
        parts: In the order of their weights.
    """

    score: int
    danger: str
    parts: tuple[HealthPart, ...]

    @property
    def level(self) -> str:
        """Return ``good``, ``fair`` or ``bad``."""
        return "good" if self.score >= 80 else "fair" if self.score >= 50 else "bad"

    @property
    def summary(self) -> str:
        """What costs something, the most first; empty if nothing does."""
        lost = sorted((part for part in self.parts if part.lost), key=lambda part: -part.lost)
        return ", ".join(f"{part.name} -{part.lost}" for part in lost)


@dataclass(frozen=True, slots=True)
class HealthInput:
    """What a score is made of.

    Attributes:
        waiting_generations: Flushed MemTables that wait for their merge.
        waiting_bytes: Their size.
        waiting_age_s: Age of the oldest in seconds.
        index_lag: Generations by which the slowest index is behind the merge.
        wal_lag: WAL entries that a restart would replay.
        failures: Failures in a row of the job that fails most.
        snapshot_age_s: Age of a snapshot that no longer shows everything; 0 if it does or none is used.
        danger: Why rows are in danger; empty if they are not.
    """

    waiting_generations: int = 0
    waiting_bytes: int = 0
    waiting_age_s: float = 0.0
    index_lag: int = 0
    wal_lag: int = 0
    failures: int = 0
    snapshot_age_s: float = 0.0
    danger: str = ""


def judge_health(facts: HealthInput, triggers: MergeTriggerSettings) -> Health:
    """Score a region or a table.

    Args:
        facts: What was found.
        triggers: Thresholds of the merge lag.
    """
    lag = max(
        facts.waiting_generations / triggers.generations,
        facts.waiting_bytes / triggers.max_waiting_bytes,
        facts.waiting_age_s / triggers.max_age_s,
    )
    parts = (
        _part(
            "merge lag",
            35,
            (lag - 1) / (_FULL_AT - 1),
            f"{facts.waiting_generations} generations, {facts.waiting_bytes:,} bytes, oldest "
            f"{facts.waiting_age_s:.0f} s: {lag:.1f} times the threshold",
        ),
        _part("index lag", 25, facts.index_lag / _INDEX_FULL_AT, f"{facts.index_lag} generations behind the merge"),
        _part("failing jobs", 20, facts.failures / _FAILURES_FULL_AT, f"{facts.failures} failures in a row"),
        _part("WAL lag", 10, facts.wal_lag / _WAL_FULL_AT, f"{facts.wal_lag} entries to replay"),
        _part(
            "snapshot", 10, facts.snapshot_age_s / _SNAPSHOT_FULL_AT_S, f"out of date for {facts.snapshot_age_s:.0f} s"
        ),
    )
    score = 0 if facts.danger else PERFECT - sum(part.lost for part in parts)
    return Health(score, facts.danger, parts)


def _part(name: str, weight: int, share: float, reason: str) -> HealthPart:
    return HealthPart(name, weight, round(weight * min(1.0, max(0.0, share))), reason)
