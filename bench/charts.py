"""Small charts as SVG text: the same input gives the same bytes, and nothing but the numbers is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH = 720
_BAR = 22
_LABEL = 230
_VALUE = 150
_INK = "#333"
_GRID = "#ddd"
_COLOURS = ("#33658a", "#c8553d", "#588157", "#8f6aa8", "#b08900", "#4c9f9f")


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: a median and what is written beside it."""

    label: str
    value: float
    note: str


def bar_chart(title: str, bars: Sequence[Bar]) -> str:
    """Draw horizontal bars on a logarithmic axis that begins a little below the smallest value.

    Args:
        title: Says what is drawn, with the unit.
        bars: Positive values.
    """
    low = min(bar.value for bar in bars) / 2
    span = math.log(max(bar.value for bar in bars) / low)
    room = _WIDTH - _LABEL - _VALUE
    parts = [_text(0, 16, title, bold=True)]
    for number, bar in enumerate(bars):
        y = 30 + number * (_BAR + 6)
        length = room * math.log(bar.value / low) / span
        parts.append(_text(_LABEL - 8, y + 15, bar.label, anchor="end"))
        parts.append(f'<rect x="{_LABEL}" y="{y}" width="{length:.1f}" height="{_BAR}" fill="{_COLOURS[0]}"/>')
        parts.append(_text(_LABEL + length + 6, y + 15, bar.note))
    height = 30 + len(bars) * (_BAR + 6) + 18
    parts.append(_text(_LABEL, height - 4, "logarithmic axis", small=True))
    return _svg(_WIDTH, height, parts)


def line_chart(title: str, x_name: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draw lines on logarithmic axes, both of the same scale per decade, with the slope of linear growth beside.

    Args:
        title: Says what is drawn.
        x_name: Of the horizontal axis.
        series: Name -> points, positive; each is drawn relative to its first point.
    """
    relative = {
        name: [(x / points[0][0], y / points[0][1]) for x, y in points] for name, points in series.items() if points
    }
    everything = [point for points in relative.values() for point in points]
    right = max(2.0, max(x for x, _ in everything))
    top = max(right, max(y for _, y in everything))
    bottom = min(1.0, min(y for _, y in everything))
    size, left, upper = 300, 44, 34
    x_scale = size / math.log(right)
    y_scale = size / math.log(top / bottom)

    def place(x: float, y: float) -> str:
        return f"{left + x_scale * math.log(x):.1f},{upper + size - y_scale * math.log(y / bottom):.1f}"

    parts = [_text(0, 16, title, bold=True)]
    parts.append(f'<rect x="{left}" y="{upper}" width="{size}" height="{size}" fill="none" stroke="{_GRID}"/>')
    parts.append(_polyline([place(1, 1), place(right, right)], _GRID, dashed=True))
    for number, (name, points) in enumerate(relative.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        parts.append(_polyline([place(x, y) for x, y in points], colour))
        y_text = upper + 14 + number * 18
        parts.append(f'<rect x="{left + size + 16}" y="{y_text - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(_text(left + size + 34, y_text, name))
    parts.append(_text(left, upper + size + 18, f"{x_name}, x 1 to x {right:g}", small=True))
    parts.append(_text(left - 6, upper + 10, f"x {top:.3g}", anchor="end", small=True))
    parts.append(_text(left - 6, upper + size, f"x {bottom:.2g}", anchor="end", small=True))
    below = upper + 14 + len(relative) * 18
    parts.append(_text(left + size + 16, below, "dashed: linear growth", small=True))
    return _svg(_WIDTH, upper + size + 28, parts)


def _polyline(places: Sequence[str], colour: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", bold: bool = False, small: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    size = 11 if small else 13
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{weight} fill="{_INK}">'
        f"{escape(text)}</text>"
    )


def _svg(width: int, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
