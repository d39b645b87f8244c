"""What is remembered of a table, so that its history cannot change unnoticed. Pure values."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType

from memwal_core.ids import RegionId

ANY_DIRECTORY = ""
"""Stands for the directory of a generation that a repair writes anew."""


@dataclass(frozen=True, slots=True)
class SeenTable:
    """The newest version of the base table that was seen.

    Attributes:
        timestamp: When it was made, in UTC.
        index_id: Of its MemWAL index; None if it has none. Commits of Lance give the index a new one.
    """

    version: int
    timestamp: datetime
    index_id: uuid.UUID | None


@dataclass(frozen=True, slots=True)
class SeenRegion:
    """The newest manifest of a region that was seen.

    Attributes:
        digest: Of the manifest's bytes: tells the region from another one of the same id. Empty if unknown.
        current_generation: As it says.
        generations: Recorded generation -> name of its directory, which no other flush has.
    """

    version: int
    digest: str
    current_generation: int
    generations: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Memory:
    """All that is remembered of a table.

    Attributes:
        addresses: Where the table is; empty if it was never seen.
        table: The newest version seen; None if none was.
        progress: Region -> highest merge progress seen.
        regions: Region -> its newest manifest seen.
        absent: Regions with merge progress and without a directory, of which no manifest was ever seen. Whatever has
            their id later began after that progress, as on a clone.
    """

    addresses: tuple[str, ...] = ()
    table: SeenTable | None = None
    progress: Mapping[RegionId, int] = field(default_factory=lambda: MappingProxyType({}))
    regions: Mapping[RegionId, SeenRegion] = field(default_factory=lambda: MappingProxyType({}))
    absent: frozenset[RegionId] = frozenset()

    def of_regions(self, regions: Collection[RegionId]) -> Memory:
        """Return what is remembered of the table and of some of its regions."""
        return replace(
            self,
            progress={each: merged for each, merged in self.progress.items() if each in regions},
            regions={each: seen for each, seen in self.regions.items() if each in regions},
            absent=self.absent & frozenset(regions),
        )

    def learned(self, address: str, table: SeenTable | None, progress: Mapping[RegionId, int]) -> Memory:
        """Return the memory with a version of the table that does not contradict it."""
        addresses = self.addresses or (address,)
        if table is None or (self.table is not None and table.version < self.table.version):
            return replace(self, addresses=addresses)
        highest = {**self.progress}
        for region_id, merged in progress.items():
            highest[region_id] = max(merged, highest.get(region_id, 0))
        return replace(self, addresses=addresses, table=table, progress=highest)

    def learned_regions(self, found: Mapping[RegionId, SeenRegion]) -> Memory:
        """Return the memory with manifests that do not contradict it."""
        newer = {
            region_id: seen
            for region_id, seen in found.items()
            if region_id not in self.regions or seen.version > self.regions[region_id].version
        }
        return replace(self, regions={**self.regions, **newer}, absent=self.absent - newer.keys()) if newer else self

    def learned_absent(self, regions: Iterable[RegionId]) -> Memory:
        """Return the memory with regions that had merge progress and then no directory."""
        return replace(self, absent=self.absent | (frozenset(regions) - self.regions.keys()))

    def without_generation(self, region_id: RegionId, generation: int) -> Memory:
        """Return the memory without the directory of a generation, which a repair is about to write anew.

        Nor need the manifest that is remembered have recorded it: it may have been forgotten before.
        """
        known = self.regions.get(region_id)
        if known is None or generation >= known.current_generation:
            return self
        anew = {**known.generations, generation: ANY_DIRECTORY}
        return replace(self, regions={**self.regions, region_id: replace(known, generations=anew)})
