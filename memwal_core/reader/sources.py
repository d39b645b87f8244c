"""Where the rows of a view come from, each place tagged by region and generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from memwal_core.ids import RegionId
from memwal_core.manifest import RegionManifest
from memwal_core.memtable import MemTable


class SourceKind(StrEnum):
    """What holds the rows of a generation."""

    FLUSHED = "flushed"
    WAL = "wal"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class WalSpan:
    """Consecutive entries of a region's WAL.

    Attributes:
        suffix: File suffix, which names the codec.
        first: First entry.
        last: Last entry; below ``first`` if there is none.
    """

    suffix: str
    first: int
    last: int

    @classmethod
    def of(cls, suffix: str, positions: range) -> WalSpan:
        """Return the span of some positions."""
        return cls(suffix, positions.start, positions.stop - 1)

    @property
    def positions(self) -> range:
        """The entries."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class GenerationSource:
    """One generation of one region.

    Attributes:
        region_id: Its region.
        generation: Its number, from 1; higher is newer within the region.
        kind: What holds its rows.
        path: Address of the flushed MemTable; empty if the rows are in memory.
        directory: The same relative to the table's root.
        rows: The rows in write order, MemTable schema; None for a flushed MemTable, and for WAL
            entries that nobody has read yet.
        wal: Where unflushed rows are stored; None for others.
        size_bytes: Arrow bytes of a flushed MemTable's rows; None if nobody knows.
    """

    region_id: RegionId
    generation: int
    kind: SourceKind
    path: str = ""
    directory: str = ""
    rows: pa.Table | None = field(default=None, repr=False, compare=False)
    wal: WalSpan | None = None
    size_bytes: int | None = field(default=None, compare=False)


class HeldRegion(Protocol):
    """A region's manifest and MemTables of one moment: no generation is missing or in both."""

    @property
    def manifest(self) -> RegionManifest:
        """As its writer last recorded it."""
        ...

    @property
    def memtables(self) -> Sequence[MemTable]:
        """Generations that the manifest does not list, oldest first."""
        ...


class RegionHolder(Protocol):
    """A region writer of this process, as far as reading goes."""

    @property
    def region_id(self) -> RegionId:
        """The region it owns."""
        ...

    def view(self) -> HeldRegion:
        """Return what it holds now."""
        ...


@dataclass(frozen=True, slots=True)
class ObservedRegion:
    """What was found of one region.

    Attributes:
        manifest: Its manifest, or what the region snapshot holds of it.
        unflushed: Rows beyond the flushed MemTables, one source per generation, ascending.
        in_memory: Whether ``unflushed`` comes from a writer of this process.
    """

    manifest: RegionManifest
    unflushed: tuple[GenerationSource, ...] = ()
    in_memory: bool = False


def observe_held(held: HeldRegion) -> ObservedRegion:
    """Return what a writer holds, its rows shared and not copied; later writes do not appear in it."""
    region_id = held.manifest.region_id
    unflushed = tuple(
        GenerationSource(region_id, memtable.generation, SourceKind.MEMORY, rows=memtable.to_table())
        for memtable in held.memtables
        if memtable.num_rows
    )
    return ObservedRegion(held.manifest, unflushed, in_memory=True)
