"""Values as texts, and texts as values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

_MOST_NAMES = 20
_MIB = 1024 * 1024
_LARGEST = 2**64 - 1
_SHOWN_WHOLE = 100_000
_MOST_DIGITS = len(str(_LARGEST))
_REQUEST = re.compile(r"(Error performing \w+ \w+://[^/\s]+)/\S* in [^\s,]+(?:, after [^-]*)?\s+- ")


def show_bytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / _MIB:.1f} MiB" if size >= _MIB else f"{size:,} B"


def most_like(text: str, known: Sequence[str]) -> list[str]:
    """Return some of the known names, those that a misspelt one may mean before all others."""
    similar = get_close_matches(text, known, n=3)
    return [*similar, *(each for each in known[:_MOST_NAMES] if each not in similar)][:_MOST_NAMES]


def whole_number(text: str | bytes) -> int | None:
    """Return what ASCII digits say; None for any other text, and for what 64 bits cannot hold.

    For texts of strangers: ``int`` takes digits of every script, and raises for those of more than 4,300.
    """
    if len(text) > _MOST_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= _LARGEST else None


def show_number(value: float) -> str:
    """Return a measured value with up to six digits, or all of a large one, and never with an exponent."""
    return f"{value:.0f}" if abs(value) >= _SHOWN_WHOLE else f"{value:.6g}"


def show_count(number: float, name: str) -> str:
    """Return a number of things, in the singular or the plural."""
    ending = "ies" if name.endswith("ry") else "es" if name.endswith(("x", "ch")) else "s"
    several = f"{name.removesuffix('y') if ending == 'ies' else name}{ending}"
    return f"{number:,.0f} {name if round(number) == 1 else several}"


def without_request(text: str) -> str:
    """Return what the client of a store says, of each address only the host.

    The caller knows the rest, which may be longer than all that is shown, with what the store answered behind it.
    """
    return _REQUEST.sub(r"\1 - ", text)
