"""One case: from a seed and a kind to hostile bytes in one file of one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from testkit.fuzz.changes.blind import change_bytes
from testkit.fuzz.changes.names import hostile_name
from testkit.fuzz.changes.reseal import reseal
from testkit.fuzz.kinds import KINDS
from testkit.fuzz.tables import MAKERS
from testkit.rng import seeded_rng

_BLIND = 0.25
"""Share of the cases that know nothing of the format."""
_NAMED = 0.05
"""Share of the cases that give a file a hostile name beside its own."""
_RESEALED = 0.7
_MOST_BYTES = 8 << 20
"""Larger files are a matter of the store, which limits what it reads."""


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        seed: Everything else follows from it and the kind.
        kind: One of ``KINDS``.
        decoder_only: Hand the bytes to the decoder of the kind (``DECODERS``) instead of storing them.
    """

    seed: int
    kind: str
    decoder_only: bool = False

    def attack(self, tables: Mapping[str, Path]) -> Attack:
        """Return what the case writes where; ``tables`` are as ``make_tables`` made them."""
        kind = KINDS[self.kind]
        rng = seeded_rng(self.seed << 32 | crc32(self.kind.encode()))
        maker = rng.choice(kind.makers or tuple(MAKERS))
        table = tables[maker]
        files = kind.files(table)
        chosen = rng.choice(files)
        data, other = chosen.read_bytes(), rng.choice(files).read_bytes()
        if rng.random() < _NAMED:
            name = hostile_name(chosen.name, rng)
            if name != chosen.name:
                return Attack(maker, table, chosen.with_name(name), data, f"stored as {name!r}")
        if rng.random() < _BLIND:
            changed, what = change_bytes(data, other, rng)
        else:
            changed, what = kind.change(data, other, rng)
        if rng.random() < _RESEALED:
            changed = reseal(changed, str(chosen.relative_to(table)))
        return Attack(maker, table, chosen, changed[:_MOST_BYTES], what)


@dataclass(frozen=True, slots=True)
class Attack:
    """What a case writes.

    Attributes:
        maker: Who made the table.
        table: The table.
        path: The file, which is made if it does not exist.
        data: Its new content.
        what: What was done to it.
    """

    maker: str
    table: Path
    path: Path
    data: bytes
    what: str

    def __str__(self) -> str:
        """Say which file and what was done."""
        return f"{self.maker}: {self.path.relative_to(self.table)}: {self.what[:300]}"


def cases(seeds: range, kinds: Sequence[str], *, decoder_only: bool = False) -> list[Case]:
    """Return one case for each seed; kinds take turns."""
    return [Case(seed, kinds[seed % len(kinds)], decoder_only) for seed in seeds]
