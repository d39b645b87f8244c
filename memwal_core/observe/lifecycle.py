"""The four states of a generation, under the names that early MemWAL releases stored (LEG-12, LEG-13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from memwal_core.region.holes import holes


class GenerationState(StrEnum):
    """Where a generation is on its one-way road.

    OPEN takes writes, SEALED waits for its flush, FLUSHED is a flushed MemTable that waits for
    its merge, MERGED is part of the base table.
    """

    OPEN = "OPEN"
    SEALED = "SEALED"
    FLUSHED = "FLUSHED"
    MERGED = "MERGED"


@dataclass(frozen=True, slots=True)
class GenerationSpan:
    """Consecutive generations in one state.

    Attributes:
        last: Highest generation, at least ``first``.
        state: Their state; None if they should be flushed but are not recorded, which is an error.
    """

    first: int
    last: int
    state: GenerationState | None

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {"first": self.first, "last": self.last, "state": None if self.state is None else self.state.value}


def generation_states(
    merged: int, recorded: Iterable[int], current_generation: int, active_generation: int | None = None
) -> tuple[GenerationSpan, ...]:
    """Derive the state of every generation of a region.

    Args:
        merged: Merge progress.
        recorded: Generations that the region manifest lists.
        current_generation: Oldest generation that is not flushed.
        active_generation: The one that takes writes, as its writer knows it; others see only WAL
            entries and take ``current_generation``.

    Returns:
        All generations from 1 to the active one, ascending.
    """
    active = max(current_generation, active_generation or 0)
    flushed = {number for number in recorded if merged < number < current_generation}
    spans = [GenerationSpan(1, merged, GenerationState.MERGED)] if merged else []
    unmerged = [GenerationSpan(number, number, GenerationState.FLUSHED) for number in flushed]
    unmerged += [
        GenerationSpan(missing.start, missing.stop - 1, None)
        for missing in holes(flushed, merged + 1, current_generation)
    ]
    spans += sorted(unmerged, key=lambda span: span.first)
    if current_generation < active:
        spans.append(GenerationSpan(max(current_generation, merged + 1), active - 1, GenerationState.SEALED))
    if active > merged:
        spans.append(GenerationSpan(active, active, GenerationState.OPEN))
    return tuple(_joined(spans))


def _joined(spans: Iterable[GenerationSpan]) -> Iterable[GenerationSpan]:
    joined: list[GenerationSpan] = []
    for span in spans:
        if span.last < span.first:
            continue
        if joined and joined[-1].state is span.state:
            joined[-1] = GenerationSpan(joined[-1].first, span.last, span.state)
        else:
            joined.append(span)
    return joined
