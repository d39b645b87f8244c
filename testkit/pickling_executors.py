"""Executors that are this process, and share nothing with it but what can be pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from memwal_core.jobs.sharing.executors import Executors, FoundT, GivenT, PieceT

ValueT = TypeVar("ValueT")


def pickled(value: ValueT) -> ValueT:
    """Return a value as another process would get it."""
    return pickle.loads(pickle.dumps(value))  # type: ignore[no-any-return]  # noqa: S301 - our own bytes


class PicklingExecutors(Executors):
    """Does each share here, as often as it is told, and keeps the last outcome, as an engine that repeats tasks may.

    Attributes:
        stages: What was done so far.
        shares: How many shares each of them had.
    """

    def __init__(self, slots: int = 2, *, times: int = 1) -> None:
        self._slots = slots
        self._times = times
        self.stages: list[str] = []
        self.shares: list[int] = []

    @property
    def slots(self) -> int:
        """As given."""
        return self._slots

    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        """Apply the function to each share, one after another."""
        self.stages.append(stage)
        self.shares.append(len(shares))
        return [self._done(function, share) for share in shares]

    def exchange(
        self,
        stage: str,
        spread: Callable[[GivenT], Iterable[tuple[int, PieceT]]],
        shares: Sequence[GivenT],
        gather: Callable[[Iterable[PieceT]], FoundT],
        parts: int,
    ) -> list[FoundT]:
        """Spread each share as often as it is told, the last one first, and gather each part."""
        self.stages.append(stage)
        self.shares.append(len(shares))
        pieces: list[list[PieceT]] = [[] for _ in range(parts)]
        for share in reversed(shares):
            for _ in range(self._times):
                found = [pickled(each) for each in pickled(spread)(pickled(share))]
            for part, piece in found:
                pieces[part].append(piece)
        return [self._done(gather, each) for each in pieces]

    def _done(self, function: Callable[[GivenT], FoundT], share: GivenT) -> FoundT:
        for _ in range(self._times - 1):
            pickled(function)(pickled(share))
        return pickled(pickled(function)(pickled(share)))
