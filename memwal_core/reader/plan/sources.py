"""The places that hold the rows of a view, each tagged by region and generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from memwal_core.ids import RegionId
from memwal_core.memtable import MemTable
from memwal_core.region import RegionManifest
from memwal_core.wal import EntryShape


class SourceKind(StrEnum):
    """What holds the rows of a generation."""

    FLUSHED = "flushed"
    WAL = "wal"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class WalSpan:
    """Consecutive entries of a region's WAL; empty if ``last`` is below ``first``. The suffix names the codec."""

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
        generation: Its number, from 1; higher is newer within the region.
        path: Address of the flushed MemTable; empty for unflushed rows.
        directory: The same relative to the table's root.
        rows: The rows in write order, MemTable schema; None for a flushed MemTable and for WAL entries that are not
            read.
        wal: Where unflushed rows are stored; None otherwise.
        size_bytes: Arrow bytes of a flushed MemTable's rows; None if unknown.
    """

    region_id: RegionId
    generation: int
    kind: SourceKind
    path: str = ""
    directory: str = ""
    rows: pa.Table | None = field(default=None, repr=False, compare=False)
    wal: WalSpan | None = None
    size_bytes: int | None = field(default=None, compare=False)


class InProcessRegion(Protocol):
    """A region's manifest and MemTables at one moment: no generation is missing or in both."""

    @property
    def manifest(self) -> RegionManifest:
        """The manifest, as its writer last recorded it."""
        ...

    @property
    def memtables(self) -> Sequence[MemTable]:
        """Generations that the manifest does not list, oldest first."""
        ...

    @property
    def shape(self) -> EntryShape:
        """The columns of their rows."""
        ...


class RegionHolder(Protocol):
    """A region writer of this process, as far as reading needs it."""

    @property
    def region_id(self) -> RegionId:
        """The region it owns."""
        ...

    def view(self) -> InProcessRegion:
        """Return its manifest and MemTables at this moment."""
        ...


@dataclass(frozen=True, slots=True)
class ObservedRegion:
    """What a survey found of one region; the manifest may be the part that the region snapshot holds.

    ``unflushed`` has one source per generation beyond the flushed MemTables, ascending; ``in_memory`` tells whether it
    comes from a writer of this process.
    """

    manifest: RegionManifest
    unflushed: tuple[GenerationSource, ...] = ()
    in_memory: bool = False


def observe_in_process(in_process: InProcessRegion) -> ObservedRegion:
    """Return what a writer holds. Rows are shared, not copied; later writes do not appear."""
    region_id, schema = in_process.manifest.region_id, in_process.shape.noted_schema
    unflushed = tuple(
        GenerationSource(
            region_id,
            memtable.generation,
            SourceKind.MEMORY,
            rows=pa.Table.from_arrays(memtable.to_table().columns, schema=schema),
        )
        for memtable in in_process.memtables
        if memtable.num_rows
    )
    return ObservedRegion(in_process.manifest, unflushed, in_memory=True)
