"""What executors are to a job: processes elsewhere that apply a function to shares of its work."""

from __future__ import annotations

import copyreg
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

GivenT = TypeVar("GivenT")
PieceT = TypeVar("PieceT")
FoundT = TypeVar("FoundT")
EndT = TypeVar("EndT")


def _read_only(values: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(values)


# Frozen values of ours hold read-only mappings, which Python does not pickle by itself.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


class Executors(ABC):
    """Processes that do work of a job, under an engine that repeats what fails."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """Tasks that run at once; may have to start the engine."""

    @abstractmethod
    def map(self, stage: str, function: Callable[[GivenT], FoundT], shares: Sequence[GivenT]) -> list[FoundT]:
        """Apply a function to each share, and return what it returned, in their order.

        A share may be done several times, also at once, and all but one outcome are dropped: whatever the function
        writes must be harmless when it is written twice, or never used. Shares see nothing of this process but what
        they are given.

        Args:
            stage: What is done, for people who watch the engine.
            function: Can be pickled; so can what it is given and returns.
            shares: What to apply it to.

        Raises:
            MemwalError: What the function raised for one of the shares.
            BareExecutorError: An executor lacks the package.
            UnavailableError: The engine gave up. Run again; what was done stands.
        """

    def map_groups(
        self,
        function: Callable[[GivenT], FoundT],
        groups: Mapping[str, Sequence[GivenT]],
        then: Callable[[str, list[FoundT]], EndT],
    ) -> list[EndT]:
        """Apply a function to the shares of several groups, and go on with each group as soon as it is done.

        Args:
            function: As in ``map``.
            groups: The shares of each stage, whose name is for people; the first group comes first.
            then: Gets the name of a stage and what its shares came to; may be called in threads of this process.

        Returns:
            What ``then`` returned for each group, in their order.

        Raises:
            MemwalError: As ``map``, and what ``then`` raised. No group is worked on any longer.
        """
        return [then(stage, self.map(stage, function, shares)) for stage, shares in groups.items()]

    @abstractmethod
    def exchange(
        self,
        stage: str,
        spread: Callable[[GivenT], Iterable[tuple[int, PieceT]]],
        shares: Sequence[GivenT],
        gather: Callable[[Iterable[PieceT]], FoundT],
        parts: int,
    ) -> list[FoundT]:
        """Have shares read, and bring together what belongs together, without passing it through this process.

        Args:
            stage: As in ``map``.
            spread: Reads one share, and yields pieces of what it found, each with the number of its part. Writes
                nothing, for it may be done again after it has ended.
            shares: What to read.
            gather: Gets all pieces of one part, in any order, and returns what they come to. It can be pickled, as all
                others.
            parts: How many parts there are, at least one.

        Returns:
            What each part came to, in their order.

        Raises:
            MemwalError: What ``spread`` or ``gather`` raised.
            BareExecutorError: An executor lacks the package.
            UnavailableError: The engine gave up. Run again.
        """
