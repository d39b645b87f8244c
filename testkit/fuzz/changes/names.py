"""Hostile names: what a name says is read, too."""

from __future__ import annotations

import re

from memwal_core.format.paths import table_manifest_name
from memwal_core.rng import Rng
from testkit.fuzz.changes.values import NUMBERS

_BITS = re.compile(r"[01]{64}")
_VERSION = re.compile(r"[0-9]{20}\.manifest")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"(?<![0-9a-f])[0-9]{1,3}(?![0-9a-f])")
_LONGEST = 240


def hostile_name(name: str, rng: Rng) -> str:
    """Return the name of one more file of the same kind: another number, another id, or no number at all."""
    if _BITS.search(name) and rng.random() < 0.7:
        return _BITS.sub(f"{rng.choice(NUMBERS) % 2**64:064b}"[::-1], name)
    if _VERSION.fullmatch(name):
        return table_manifest_name(rng.choice([number for number in NUMBERS if 0 < number < 2**64]))
    if _UUID.search(name) and rng.random() < 0.5:
        return _UUID.sub(
            rng.choice(("0" * 8 + "-0000" * 3 + "-" + "0" * 12, "f" * 8 + "-ffff" * 3 + "-" + "f" * 12)), name
        )
    if _NUMBER.search(name):
        return _NUMBER.sub(rng.choice((*map(str, NUMBERS), "9" * 200, "00", "\N{SUPERSCRIPT TWO}")), name, count=1)
    stem, _, suffix = name.rpartition(".")
    odd = rng.choice(("", "..", "%2e", "a" * _LONGEST, "x\nx", "-1", stem + stem))
    return f"{odd}x.{suffix}"[-_LONGEST:]
