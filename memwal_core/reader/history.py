"""What a reader asks of the memory of a table: which regions there were, and whether what was found can follow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from memwal_core.base_table import TableState
from memwal_core.errors import DamagedError
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest


@dataclass(frozen=True, slots=True)
class Doubts:
    """What makes the rows of a table doubtful.

    Attributes:
        causes: Why the table is frozen, or will be once a job looks at it.
        regions: Region -> why a read must not take its manifest for what it seems to be.
        are_new: Whether something was found that no job has found yet.
        turned_back: Whether the whole table went back behind what was merged and collected: its rows are what its
            version says.
    """

    causes: tuple[str, ...] = ()
    regions: Mapping[RegionId, DamagedError] = field(default_factory=lambda: MappingProxyType({}))
    are_new: bool = False
    turned_back: bool = False


class Recollection(Protocol):
    """What was remembered of a table when a read began."""

    @property
    def regions(self) -> Collection[RegionId]:
        """Regions that must exist."""
        ...

    @property
    def causes(self) -> tuple[str, ...]:
        """Why the table is frozen."""
        ...

    def doubts(self, state: TableState, manifests: Sequence[RegionManifest]) -> Doubts:
        """Compare the newest version of the table, and manifests of its regions that were read before it.

        Asks the store for nothing unless the table has another MemWAL index than before of which nothing was merged,
        or is a clone that no job has seen.
        """
        ...


class ReadHistory(Protocol):
    """The memory of one table."""

    def recall(self, *, again: bool = False) -> Recollection:
        """Return what is remembered, as it was at most half a minute ago; ``again`` reads it anew. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class NothingRemembered:
    """The memory of a table of which nothing is to be compared."""

    regions: Collection[RegionId] = ()
    causes: tuple[str, ...] = ()

    def recall(self, *, again: bool = False) -> NothingRemembered:
        """Return the same."""
        del again
        return self

    def doubts(self, state: TableState, manifests: Sequence[RegionManifest]) -> Doubts:
        """Doubt nothing."""
        del state, manifests
        return Doubts()


NOTHING_REMEMBERED = NothingRemembered()
