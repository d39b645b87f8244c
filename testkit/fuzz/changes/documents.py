"""JSON documents whose values are changed at any depth."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from memwal_core.rng import Rng
from testkit.fuzz.changes.values import NUMBERS, TIMES, hostile_text

_MARK = "memwal-fuzz-raw"
_MOST_PLACES = 10_000
_REPEATED = "repeated"
_MOST_TEXT = 8 << 20
_DEPTHS = (50, 900, 100_000)
_RAW = (
    "NaN", "-Infinity", "1e999", "-0.0", "1" * 4_000, "1" * 5_000, "true", "null", "[]", "{}", '""', "[[]]", '{"a": 1}',
    "-1", str(-(2**63) - 1), "0.5", '"\\ud800"', '"\\u0000"', "[null]", "[[1, 2, 3]]", "{}, {}", "",
)  # fmt: skip
"""What is written in place of a value, as text."""


def change_json(data: bytes, rng: Rng) -> tuple[bytes, str]:
    """Change some values of a document; the bytes, and what was done."""
    root = [json.loads(data)]
    raw: list[str] = []
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(islice(_places(root), _MOST_PLACES))
        holder, place = rng.choice(places)
        what = _change_one(holder, place, root, raw, rng)
        done.append(f"{place!r} {what}")
        if what.startswith(_REPEATED):
            break  # What repeats is one object, so a change within would be repeated as often: gigabytes.
    text = json.dumps(root[0])
    for number, each in enumerate(raw):
        # One that was repeated stands a few times only: the case is about the document, not about its making.
        text = text.replace(json.dumps(f"{_MARK}{number}"), each, max(1, _MOST_TEXT // max(1, len(each))))
    return text.encode(errors="surrogatepass"), "; ".join(done)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - parsed JSON
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _change_one(holder: Any, place: Any, root: Any, raw: list[str], rng: Rng) -> str:  # noqa: ANN401 - parsed JSON
    kind = rng.choice(("value", "value", "value", "raw", "raw", "other", _REPEATED, "removed", "key"))
    if kind == "removed" and holder is not root:
        del holder[place]
        return kind
    if kind == "key" and isinstance(holder, dict):
        holder[hostile_text(rng)] = holder.pop(place)
        return kind
    holder[place] = new = _value_for(kind, holder[place], root, raw, rng)
    return f"{kind} {str(new)[:60]!r}"


def _value_for(kind: str, value: Any, root: Any, raw: list[str], rng: Rng) -> Any:  # noqa: ANN401 - parsed JSON
    if kind == "raw":
        depth = rng.choice(_DEPTHS)
        deep = rng.choice(("[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth))
        raw.append(rng.choice((*_RAW, *(deep,) * 4)))
        return f"{_MARK}{len(raw) - 1}"
    if kind == "other":
        there, key = rng.choice(list(islice(_places(root), _MOST_PLACES)))
        return json.loads(json.dumps(there[key]))
    if kind == _REPEATED:
        return [value] * min(rng.choice((2, 100, 5_000)), max(2, _MOST_TEXT // len(json.dumps(value))))
    return rng.choice((rng.choice((*NUMBERS, -1, -(2**63), 10**30, 1e308, 0.5)), hostile_text(rng), rng.choice(TIMES)))
