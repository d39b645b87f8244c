"""What executors are to a job: processes elsewhere that apply a function to shares of its work."""

from __future__ import annotations

import copyreg
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

GivenT = TypeVar("GivenT")
FoundT = TypeVar("FoundT")


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
            InvalidRequestError: The executors lack the package.
            UnavailableError: The engine gave up. Run again; what was done stands.
        """
