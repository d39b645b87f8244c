"""A region's generations as a row of coloured stretches: pure geometry, drawn by the template."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from memwal_core.observe.lifecycle import GenerationSpan, GenerationState

WIDTH = 480.0
_SMALLEST = 8.0
_LONGEST_SPAN = 12


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive generations in one state.

    Attributes:
        width: At least a few pixels.
        state: Lower-case state, ``quarantined`` (flushed, and no merge takes it on), or ``missing``.
        numbers: Which generations, for the line below the picture.
    """

    x: float
    width: float
    state: str
    label: str
    numbers: str


def draw_timeline(spans: Sequence[GenerationSpan], quarantined: Collection[int] = ()) -> tuple[Stretch, ...]:
    """Lay generations out from old to new; long spans are shortened so that the newest stay visible.

    Args:
        spans: All generations of a region, ascending.
        quarantined: Flushed generations that no merge takes on.
    """
    parts = [part for span in spans for part in _parts(span, frozenset(quarantined))]
    weights = [float(min(last - first + 1, _LONGEST_SPAN)) for first, last, _ in parts]
    unit = max(0.0, WIDTH - _SMALLEST * len(parts)) / (sum(weights) or 1.0)
    stretches, x = [], 0.0
    for (first, last, state), weight in zip(parts, weights, strict=True):
        width = _SMALLEST + unit * weight
        one = first == last
        label = f"generation {first}: {state}" if one else f"generations {first} to {last}: {state}"
        stretches.append(Stretch(round(x, 1), round(width, 1), state, label, str(first) if one else f"{first}-{last}"))
        x += width
    return tuple(stretches)


def _parts(span: GenerationSpan, quarantined: frozenset[int]) -> Iterator[tuple[int, int, str]]:
    """Yield first, last and state of the pieces of a span, cut where generations are held."""
    state = span.state.value.lower() if span.state is not None else "missing"
    first = span.first
    if span.state is GenerationState.FLUSHED:
        for number in sorted(each for each in quarantined if span.first <= each <= span.last):
            if first < number:
                yield first, number - 1, state
            yield number, number, "quarantined"
            first = number + 1
    if first <= span.last:
        yield first, span.last, state
