"""Values as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from markupsafe import Markup, escape

_SHOWN_FACTS = (
    "generations",
    "rows",
    "regions",
    "fragments_before",
    "fragments_after",
    "failures",
    "checks",
    "quarantined",
    "version",
)
"""Of a run's facts those that tell people what it did."""

_ID = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_LONG = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{9,}")
"""The name of a file that a machine made up; the evidence has the whole."""

_NAMES = {"memtable": "MemTable", "wal": "WAL", "lsm": "LSM", "gc": "garbage collection", "catchup": "catch-up"}
_PHRASES = {"check_failed": "failed checks"}


def words(name: str) -> str:
    """Return the name of a check, a job, an outcome or a kind of garbage as people write it."""
    return _PHRASES.get(name) or " ".join(_NAMES.get(part, part) for part in name.split("_"))


def size(size_bytes: float) -> str:
    """Return a size with its unit."""
    amount, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def age(seconds: float | None) -> str:
    """Return a length of time with its unit; ``never`` for None."""
    if seconds is None:
        return "never"
    for length, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{seconds / length:.1f} {name}"
    return f"{seconds:.0f} s"


def share(value: float) -> str:
    """Return a part of a whole in per cent."""
    return f"{100 * value:.0f} %"


def short_ids(text: str) -> str:
    """Return a text with regions named by the beginning of their ids, as everywhere on the page; files, too."""
    return _LONG.sub(r"\1…", _ID.sub(r"\1", text))


def facts(values: Mapping[str, object]) -> str:
    """Return those of a run's facts that tell people what it did."""
    return ", ".join(f"{name} {values[name]}" for name in _SHOWN_FACTS if isinstance(values.get(name), int))


def marked(text: str) -> Markup:
    """Return a text as HTML, with what stands between backticks as code."""
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(text.split("`"))
    )


def as_sentence(text: str) -> str:
    """Return a text that begins with a capital letter and ends with a full stop."""
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}" if text else ""
