"""Whether a region is due for a merge: generations or bytes or age, each alone sufficient."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memwal_core.settings import MergeTriggerSettings


class Trigger(StrEnum):
    """What can make a region due."""

    GENERATIONS = "generations"
    BYTES = "bytes"
    AGE = "age"


@dataclass(frozen=True, slots=True)
class WaitingGenerations:
    """What waits for its merge in one region.

    Attributes:
        generations: Number of flushed MemTables above the merge progress.
        oldest_age_s: Age of the oldest in seconds; None if nothing waits or its age is unknown.
    """

    generations: int
    size_bytes: int
    oldest_age_s: float | None


@dataclass(frozen=True, slots=True)
class Distance:
    """One trigger's value against the threshold at which it fires."""

    trigger: Trigger
    value: float
    threshold: float

    @property
    def fires(self) -> bool:
        """Whether the value has reached the threshold."""
        return self.value >= self.threshold

    @property
    def missing(self) -> float:
        """How far the value is from the threshold; 0 if it fires."""
        return max(0.0, self.threshold - self.value)

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "trigger": self.trigger.value,
            "value": self.value,
            "threshold": self.threshold,
            "fires": self.fires,
            "missing": self.missing,
        }


@dataclass(frozen=True, slots=True)
class TriggerVerdict:
    """Whether a region is due, and the distance of every trigger whose value is known."""

    due: bool
    distances: tuple[Distance, ...]
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"due": self.due, "reason": self.reason, "triggers": [each.to_dict() for each in self.distances]}


def judge_triggers(waiting: WaitingGenerations, settings: MergeTriggerSettings) -> TriggerVerdict:
    """Decide whether a region is due for a merge."""
    if not waiting.generations:
        return TriggerVerdict(False, (), "nothing waits for a merge")
    distances = [
        Distance(Trigger.GENERATIONS, waiting.generations, settings.generations),
        Distance(Trigger.BYTES, waiting.size_bytes, settings.max_waiting_bytes),
    ]
    if waiting.oldest_age_s is not None:
        distances.append(Distance(Trigger.AGE, waiting.oldest_age_s, settings.max_age_s))
    firing = [each for each in distances if each.fires]
    shown = ", ".join(f"{each.trigger.value} {each.value:.0f} of {each.threshold:.0f}" for each in firing or distances)
    return TriggerVerdict(bool(firing), tuple(distances), f"{'due' if firing else 'not due yet'}: {shown}")
