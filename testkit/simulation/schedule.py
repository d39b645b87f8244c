"""Which turns of a seed are played, and what goes wrong in them: everything, or the little that a failure needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

_TURN = re.compile(r"(?P<number>[1-9][0-9]*)(?:(?P<quiet>q)|(?P<troubles>(?::[1-9][0-9]*)+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Some turns of a seed. What a turn draws depends on the seed and its number, and not on the turns before it.

    Attributes:
        turns: Their numbers, from 1, ascending.
        troubles: Turn -> what alone of all that the turn draws goes wrong in it, from 1: another actor's turn, a call
            that fails, a death. All of it in turns that are not here.
    """

    turns: tuple[int, ...]
    troubles: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, turns: int) -> Self:
        """Return the schedule of so many turns, all of them as the seed draws them."""
        return cls(tuple(range(1, turns + 1)))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what ``str`` writes, for example ``3,7q,12:2:5``; ``ValueError`` if it is no such list."""
        found = [_TURN.fullmatch(each.strip()) for each in text.split(",")]
        turns = {int(each["number"]): each for each in found if each is not None}
        numbers = tuple(turns)
        if len(numbers) < len(found) or numbers != tuple(sorted(numbers)):
            raise ValueError(
                "turns look like 3,7q,12:2:5, ascending: all of turn 3, turn 7 undisturbed, of what goes wrong in "
                f"turn 12 the second and the fifth; this is {text!r}"
            )
        troubles = {
            number: frozenset(int(each) for each in (turn["troubles"] or "").split(":") if each)
            for number, turn in turns.items()
            if turn["quiet"] or turn["troubles"]
        }
        return cls(numbers, troubles)

    def __str__(self) -> str:
        return ",".join(f"{number}{self._suffix(number)}" for number in self.turns)

    def _suffix(self, turn: int) -> str:
        troubles = self.troubles.get(turn)
        if troubles is None:
            return ""
        return "".join(f":{number}" for number in sorted(troubles)) or "q"
