"""Whether a region is due for a merge: generations or bytes or age, each alone sufficient.

The number of generations is not, while the merge would read far more of the base table than it merges.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memwal_core.settings import MergeTriggerSettings
from memwal_core.text import show_bytes, show_count


class Trigger(StrEnum):
    """What can make a region due."""

    GENERATIONS = "generations"
    BYTES = "bytes"
    AGE = "age"


_CHEAP_BYTES = 16 << 20
"""A search that reads no more is always worth it."""


@dataclass(frozen=True, slots=True)
class SearchWork:
    """What finding the base rows that a merge replaces would read.

    Attributes:
        regions: Regions in which something waits, which share one search.
    """

    read_bytes: int
    regions: int

    def amplification(self, merged_bytes: int) -> float:
        """Return the bytes read for each byte of one region that is merged."""
        return self.read_bytes / max(1, self.regions) / max(1, merged_bytes)


@dataclass(frozen=True, slots=True)
class WaitingGenerations:
    """What waits for its merge in one region.

    Attributes:
        oldest_age_s: Age of the oldest in seconds; None if nothing waits or its age is unknown.
        search: What the search costs; None if it is not known, or follows the keys.
    """

    generations: int
    size_bytes: int
    oldest_age_s: float | None
    search: SearchWork | None = None


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
    if [each.trigger for each in firing] == [Trigger.GENERATIONS] and (reason := _not_worthwhile(waiting, settings)):
        return TriggerVerdict(False, tuple(distances), reason)
    shown = ", ".join(f"{each.trigger.value} {each.value:.0f} of {each.threshold:.0f}" for each in firing or distances)
    return TriggerVerdict(bool(firing), tuple(distances), f"{'due' if firing else 'not due yet'}: {shown}")


def due_by_number_alone(verdict: TriggerVerdict) -> bool:
    """Return whether the number of generations alone makes a region due, so that the cost of the search matters."""
    return verdict.due and [each.trigger for each in verdict.distances if each.fires] == [Trigger.GENERATIONS]


def _not_worthwhile(waiting: WaitingGenerations, settings: MergeTriggerSettings) -> str:
    """Return why a merge would read too much for what it merges; empty if it would not, or no age bounds the wait."""
    search = waiting.search
    if search is None or waiting.oldest_age_s is None or search.read_bytes <= _CHEAP_BYTES:
        return ""
    amplification = search.amplification(waiting.size_bytes)
    if amplification <= settings.max_read_amplification:
        return ""
    return (
        f"not due yet: the merge of what waits ({show_count(waiting.generations, 'generation')}) would read "
        f"{amplification:.0f} bytes of the base table's keys ({show_bytes(search.read_bytes)} for "
        f"{show_count(search.regions, 'region')}) for each byte that it "
        f"merges, more than {settings.max_read_amplification:g}; it waits for more, or until the oldest is "
        f"{settings.max_age_s:.0f} s old (now {waiting.oldest_age_s:.0f} s)"
    )
