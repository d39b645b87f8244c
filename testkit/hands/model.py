"""What a table must show: its versions, regions, and which refusals are explained by what was done to it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from memwal_core.coordination.freeze import FreezeCause
from memwal_core.ids import RegionId

Rows = Mapping[int, str]
Writes = Mapping[int, str | None]
"""Key -> value; None for a delete."""

HISTORY_CAUSES = frozenset(
    {
        FreezeCause.INDEX_GONE,
        FreezeCause.INDEX_MADE_ANEW,
        FreezeCause.PROGRESS_WENT_BACK,
        FreezeCause.TABLE_WENT_BACK,
    }
)
"""What a freeze may say after the base table was turned back or replaced."""
REGION_CAUSES = frozenset({FreezeCause.REGION_VANISHED, FreezeCause.REGION_BEGAN_AGAIN, FreezeCause.PROGRESS_AHEAD})
"""What a freeze may say after a region's directory was removed, or on a table that has none of its regions."""


VANISHED = "a region vanished"
"""The one reason for which a merge stops for a region, and not for the table."""


TURNED = "turned back"
"""Begins the reasons that a restore of what was there undoes."""


def with_writes(rows: Rows, writes: Iterable[Writes]) -> dict[int, str]:
    """Return rows after some writes, in order."""
    found: dict[int, str | None] = dict(rows)
    for each in writes:
        found.update(each)
    return {key: value for key, value in found.items() if value is not None}


@dataclass
class RegionModel:
    """What was acknowledged in one region.

    Attributes:
        incarnation: Tells the region from one that had its id before.
        layers: Flushed generations, from 1 on.
        tail: Acknowledged, and in the WAL only.
        lost: What was removed with the region before this one, not merged; nothing may show the table without it.
        is_gone: Somebody removed the region.
    """

    incarnation: int = 0
    layers: list[Writes] = field(default_factory=list)
    tail: dict[int, str | None] = field(default_factory=dict)
    lost: list[Writes] = field(default_factory=list)
    is_gone: bool = False

    def removed(self, merged: int) -> None:
        """Note that the directory is gone, of which some generations were merged."""
        self.lost += [*self.layers[merged:], self.tail]
        self.layers, self.tail, self.is_gone = [], {}, True
        self.incarnation += 1

    def flushed(self) -> None:
        """Note that what waits became a generation."""
        self.layers.append(dict(self.tail))
        self.tail = {}


@dataclass(frozen=True)
class Merged:
    """Merge progress of the incarnation of a region that it was made for."""

    incarnation: int
    generation: int


@dataclass(frozen=True)
class Version:
    """What one version of the base table holds.

    Attributes:
        rows: All rows.
        progress: Merge progress; None if the version has no MemWAL index.
    """

    rows: Rows
    progress: Mapping[RegionId, Merged] | None


@dataclass(frozen=True)
class Branch:
    """A branch of the table.

    Attributes:
        uri: Where the table was.
        rows: All rows.
    """

    uri: str
    rows: Rows


@dataclass
class TableModel:
    """One table, wherever it lies.

    Attributes:
        versions: Those that a step ended with.
        newest: The newest one.
        regions: Those that were written to.
        addresses: Where jobs have accepted the table.
        excuses: Causes that a freeze may have.
        frozen: Causes of freezes that were found and not ended; they go with the table.
        must_freeze: Why a merge must not end well; empty if it may.
        turned_from: The progress before the content was turned back.
        is_turned_back: Content and progress no longer belong together, so that every read has to warn.
        damaged: Path -> bytes before the damage.
        partial: Why the table is not whole, so that reads may be refused: it refers to files elsewhere, or lost some.
        tags: Tag -> rows.
        branches: By name.
        remembered: Highest progress that a job saw.
    """

    versions: dict[int, Version] = field(default_factory=dict)
    newest: int = 0
    regions: dict[RegionId, RegionModel] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    excuses: set[FreezeCause] = field(default_factory=set)
    frozen: set[FreezeCause] = field(default_factory=set)
    must_freeze: set[str] = field(default_factory=set)
    turned_from: Mapping[RegionId, Merged] = field(default_factory=dict)
    is_turned_back: bool = False
    damaged: dict[str, bytes] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    tags: dict[str, Rows] = field(default_factory=dict)
    branches: dict[str, Branch] = field(default_factory=dict)
    remembered: dict[RegionId, int] = field(default_factory=dict)

    def copied(self) -> TableModel:
        """Return the model of a copy of the table."""
        return copy.deepcopy(self)

    @property
    def now(self) -> Version:
        """The newest version."""
        return self.versions[self.newest]

    @property
    def is_enabled(self) -> bool:
        """Whether the newest version has a MemWAL index."""
        return self.now.progress is not None

    @property
    def stops_all(self) -> bool:
        """Whether nothing at all may be merged."""
        return bool(self.must_freeze - {VANISHED})

    @property
    def is_sound(self) -> bool:
        """Whether no file is missing or damaged."""
        return not self.damaged and not self.partial

    def merged(self, region_id: RegionId) -> int:
        """Return how many generations of the present incarnation the newest version has merged."""
        found = (self.now.progress or {}).get(region_id)
        known = self.regions.get(region_id)
        if found is None or known is None or found.incarnation != known.incarnation:
            return 0
        return found.generation

    def truth(self) -> Rows:
        """Return the rows that a read of everything durable must show: what is merged, and what waits."""
        waiting = [
            writes
            for region_id, region in self.regions.items()
            for writes in (*region.lost, *region.layers[self.merged(region_id) :], region.tail)
        ]
        return with_writes(self.now.rows, waiting)

    def after_progress(self, progress: Mapping[RegionId, int]) -> Rows:
        """Return the rows of the base table once merges came from the present progress to a higher one."""
        layers = [
            writes
            for region_id, region in self.regions.items()
            for writes in region.layers[self.merged(region_id) : progress.get(region_id, 0)]
        ]
        return with_writes(self.now.rows, layers)

    def has_version(self, number: int, rows: Rows, progress: Mapping[RegionId, int] | None) -> None:
        """Note the version that is the newest now."""
        self.newest = number
        self.versions[number] = Version(dict(rows), self._dated(progress))

    def _dated(self, progress: Mapping[RegionId, int] | None) -> Mapping[RegionId, Merged] | None:
        if progress is None:
            return None
        known = {each: region.incarnation for each, region in self.regions.items()}
        return {each: Merged(known.get(each, 0), generation) for each, generation in progress.items()}

    def turned_back(self, why: str, *, to: Version | None) -> None:
        """Note that somebody replaced or turned back the content.

        Args:
            why: In a few words.
            to: The version that it is like; None if it is a new content without an index.
        """
        before = self.turned_from if self.is_turned_back else dict(self.now.progress or {})
        after = to.progress if to is not None else None
        lower = after is None or any(
            merged.generation > after[each].generation if each in after else merged.generation > 0
            for each, merged in before.items()
        )
        if lower and (self.regions or before):
            self.is_turned_back, self.turned_from = True, before
            self.excuses |= HISTORY_CAUSES
            self.must_freeze.add(f"{TURNED}: {why}")
        elif lower:
            self.excuses |= HISTORY_CAUSES
        else:
            # Whatever was done to it before: rows and progress are those of one version again, and nothing is missing.
            self.is_turned_back = False
            self.must_freeze = {each for each in self.must_freeze if not each.startswith(TURNED)}
