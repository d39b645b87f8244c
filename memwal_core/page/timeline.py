"""A region's generations as a row of coloured stretches: pure geometry, drawn by the template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memwal_core.maintenance.lifecycle import GenerationSpan

WIDTH = 480.0
_SMALLEST = 8.0
_LONGEST_SPAN = 12


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive generations in one state.

    Attributes:
        x: Left end.
        width: At least a few pixels.
        state: Lower-case state, or ``missing``.
        label: For the tooltip and for screen readers.
    """

    x: float
    width: float
    state: str
    label: str


def draw_timeline(spans: Sequence[GenerationSpan]) -> tuple[Stretch, ...]:
    """Lay generations out from old to new; long spans are shortened so that the newest stay visible.

    Args:
        spans: All generations of a region, ascending.
    """
    weights = [float(min(span.last - span.first + 1, _LONGEST_SPAN)) for span in spans]
    unit = max(0.0, WIDTH - _SMALLEST * len(spans)) / (sum(weights) or 1.0)
    stretches, x = [], 0.0
    for span, weight in zip(spans, weights, strict=True):
        width = _SMALLEST + unit * weight
        state = span.state.value.lower() if span.state is not None else "missing"
        stretches.append(Stretch(round(x, 1), round(width, 1), state, _label(span, state)))
        x += width
    return tuple(stretches)


def _label(span: GenerationSpan, state: str) -> str:
    if span.first == span.last:
        return f"generation {span.first}: {state}"
    return f"generations {span.first} to {span.last}: {state}"
