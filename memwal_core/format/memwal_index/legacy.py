"""The MemWAL index of early releases, as values to show. Nothing here is ever written.

Its regions have names instead of UUIDs, its state machine is stored instead of derived, and its
writer is guarded by an owner id instead of an epoch. Data is never read from the locations it
names: the MemTable's is usually another process's memory, and WAL and MemTable formats were left open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise


class LegacyState(StrEnum):
    """State of a MemWAL, which only moves forward in this order.

    FLUSHED means stored, not merged; only a MERGED one may be cleaned up.
    """

    OPEN = "OPEN"
    SEALED = "SEALED"
    FLUSHED = "FLUSHED"
    MERGED = "MERGED"


_ORDER = tuple(LegacyState)


@dataclass(frozen=True, slots=True)
class WalIds:
    """Ids of WAL entries, from 0, as stored: first and last id of each run of consecutive ids."""

    spans: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        """How many ids."""
        return sum(last - first + 1 for first, last in self.spans)

    @property
    def holes(self) -> tuple[tuple[int, int], ...]:
        """Missing runs between the ids, left by writers that lost a race for the index."""
        ordered = sorted(self.spans)
        gaps = ((before[1] + 1, after[0] - 1) for before, after in pairwise(ordered))
        return tuple((first, last) for first, last in gaps if first <= last)

    def __str__(self) -> str:
        """Return the ids for people, for example ``0-3, 6-9``."""
        return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.spans) or "none"


@dataclass(frozen=True, slots=True)
class LegacyMemWal:
    """One entry of the early index.

    Attributes:
        mem_table_location: Where its MemTable was; shown, never opened.
        wal_location: Root of its WAL; shown, never opened.
        wal_entries: Ids of its WAL entries; None if what is stored cannot be read.
        owner_id: Who may change the entry.
        last_updated_dataset_version: Table version that created or last changed it.
    """

    region: str
    generation: int
    state: LegacyState
    mem_table_location: str
    wal_location: str
    wal_entries: WalIds | None
    owner_id: str
    last_updated_dataset_version: int

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region": self.region,
            "generation": self.generation,
            "state": self.state.value,
            "mem_table_location": self.mem_table_location,
            "wal_location": self.wal_location,
            "wal_entries": str(self.wal_entries) if self.wal_entries is not None else None,
            "wal_entry_holes": [list(hole) for hole in self.wal_entries.holes] if self.wal_entries is not None else [],
            "owner_id": self.owner_id,
            "last_updated_dataset_version": self.last_updated_dataset_version,
        }


@dataclass(frozen=True, slots=True)
class LegacyIndex:
    """The whole early index at one table version, entries in stored order."""

    version: int
    mem_wals: tuple[LegacyMemWal, ...]

    def by_region(self) -> Mapping[str, Sequence[LegacyMemWal]]:
        """Return the entries of each region, in stored order."""
        found: dict[str, list[LegacyMemWal]] = {}
        for each in self.mem_wals:
            found.setdefault(each.region, []).append(each)
        return found


def legacy_problems(index: LegacyIndex, older: Iterable[LegacyIndex] = ()) -> Iterator[str]:
    """Yield what contradicts the rules of the early layout, one sentence each.

    ``older`` are earlier versions of the same table, ascending; some may have been cleaned up.
    """
    for region, entries in index.by_region().items():
        yield from _region_problems(region, entries)
    for each in index.mem_wals:
        if each.last_updated_dataset_version > index.version:
            yield (
                f"region {each.region} generation {each.generation} was last updated by version "
                f"{each.last_updated_dataset_version}, but the table is at {index.version}"
            )
    history = [*older, index]
    for before, after in pairwise(history):
        yield from _change_problems(before, after)


def _region_problems(region: str, entries: Sequence[LegacyMemWal]) -> Iterator[str]:
    generations = [each.generation for each in entries]
    ordered = sorted(generations)
    if ordered != list(range(ordered[0], ordered[0] + len(ordered))):
        yield f"generations of region {region} do not rise by one: {generations}"
    open_ones = [each.generation for each in entries if each.state is LegacyState.OPEN]
    if len(open_ones) != 1:
        yield f"region {region} must have exactly one OPEN generation, but has {open_ones}"
    elif open_ones[0] != ordered[-1]:
        yield f"region {region} has generation {open_ones[0]} OPEN although {ordered[-1]} is newer"


def _change_problems(before: LegacyIndex, after: LegacyIndex) -> Iterator[str]:
    known = {(each.region, each.generation): each for each in before.mem_wals}
    for new in after.mem_wals:
        old = known.get((new.region, new.generation))
        if old is None:
            continue
        where = f"region {new.region} generation {new.generation} between versions {before.version} and {after.version}"
        if new.wal_location != old.wal_location:
            yield f"the WAL location of {where} changed from {old.wal_location} to {new.wal_location}"
        steps = _ORDER.index(new.state) - _ORDER.index(old.state)
        # Versions in between may have been cleaned up, and with them the steps in between.
        longest = 1 if after.version == before.version + 1 else len(_ORDER)
        if not 0 <= steps <= longest:
            yield f"the state of {where} went from {old.state.value} to {new.state.value}"
