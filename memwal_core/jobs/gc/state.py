"""The state of a table as values, on which a garbage collection plans."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from memwal_core.base_table import RetainedVersion
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.storage.protocol import ObjectInfo


@dataclass(frozen=True, slots=True)
class ByProgress:
    """The retained versions that have a MemWAL index, by what they had merged of one region, ascending.

    Attributes:
        progress: What each of them had merged.
        pinned: The least that one had merged that has a tag or belongs to a branch; None if there is none.
    """

    versions: tuple[RetainedVersion, ...]
    progress: tuple[int, ...]
    pinned: int | None

    def count_needing(self, generation: int) -> int:
        """Return how many of them, from the first on, had not merged a generation: whoever reads them needs it."""
        return bisect_left(self.progress, generation)


@dataclass(frozen=True, slots=True)
class BaseState:
    """What garbage collection knows of the base table.

    Attributes:
        version: The newest version.
        num_rows: Its live rows.
        details: Its MemWAL index; None if it has none that can be read.
        index_names: All indexes that queries may use, except Lance's own.
        retained: Every version that can still be opened.
        untrained: Indexes that no query can use because Lance has not trained them.
        problem: Why nothing may be concluded from the table; empty if there is no problem.
    """

    version: int
    num_rows: int
    details: MemWalIndexDetails | None
    index_names: tuple[str, ...] = ()
    retained: tuple[RetainedVersion, ...] = field(default=(), repr=False)
    problem: str = ""
    untrained: frozenset[str] = frozenset()
    _by_progress: dict[RegionId, ByProgress] = field(default_factory=dict, init=False, repr=False, compare=False)

    def merged(self, region_id: RegionId) -> int:
        """Return the merge progress of a region in the newest version."""
        return 0 if self.details is None else self.details.merged_generation(region_id)

    def by_progress(self, region_id: RegionId) -> ByProgress:
        """Return the retained versions by what they had merged of a region; sorted once for its generations in a row.

        Only the last answer is kept: those of all regions would grow with regions times versions.
        """
        found = self._by_progress.get(region_id)
        if found is None:
            read = [(each.merged.get(region_id, 0), each) for each in self.retained if each.enabled]
            read.sort(key=lambda pair: pair[0])
            pinned = min((merged for merged, each in read if each.tags or each.branch), default=None)
            found = ByProgress(tuple(each for _, each in read), tuple(merged for merged, _ in read), pinned)
            self._by_progress.clear()
            self._by_progress[region_id] = found
        return found


@dataclass(frozen=True, slots=True)
class DirectoryState:
    """One directory in the form of a flushed MemTable's.

    Attributes:
        generation: The generation in its name; 0 if a manifest records it under a name of another form.
        modified: When the newest of them was written.
        wal_ids: WAL entries that the table in it consists of; None if they could not be read, for the reason in
            ``problem``.
    """

    name: str
    generation: int
    objects: int
    size_bytes: int
    modified: datetime
    wal_ids: frozenset[int] | None = frozenset()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NumberedObject:
    """A WAL entry, a manifest version, a register version or a staged manifest."""

    number: int
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class GcRegionState:
    """One region: its manifest and everything in its directory.

    Attributes:
        manifest: The newest manifest; None if there is none that can be read.
        versions: Manifest versions, ascending.
        epochs: When retained manifest versions were written and which epoch they have, ascending. Read only if there
            are directories that the newest manifest does not record.
        drained: Directory -> when its record was removed, for those that a retained manifest version still records.
        settled_wal_id: The replay pointer as it was before any writer that may still acknowledge without a look at the
            region verified its epoch; 0 if it was not read, because no WAL entry could be deleted.
        directories: Directories of flushed MemTables, recorded or not.
        wal: WAL entries of both codecs, ascending by number.
        temporaries: Temporary files in the directories of manifests and WAL entries.
        unknown: Objects of unknown form.
        problem: Why nothing may be concluded about the region; empty if there is no problem.
        is_damaged: Whether the problem is a file of the region that is lost or damaged.
    """

    region_id: RegionId
    manifest: RegionManifest | None
    versions: tuple[NumberedObject, ...] = ()
    epochs: tuple[tuple[datetime, int], ...] = ()
    drained: Mapping[str, datetime] = field(default_factory=lambda: MappingProxyType({}))
    settled_wal_id: int = 0
    directories: tuple[DirectoryState, ...] = ()
    wal: tuple[NumberedObject, ...] = ()
    wal_suffixes: frozenset[str] = frozenset()
    temporaries: tuple[ObjectInfo, ...] = ()
    unknown: tuple[ObjectInfo, ...] = ()
    problem: str = ""
    is_damaged: bool = False

    @property
    def recorded(self) -> frozenset[str]:
        """Directories that the newest manifest records."""
        manifest = self.manifest
        return frozenset() if manifest is None else frozenset(each.path for each in manifest.flushed_generations)


@dataclass(frozen=True, slots=True)
class Resting:
    """Regions that need not be read.

    Attributes:
        base: The base table as they were judged with; None if there are none.
    """

    base: BaseState | None = None
    regions: Mapping[RegionId, GcRegionState] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Register:
    """A directory of numbered versions, ascending."""

    directory: str
    suffix: str
    versions: tuple[NumberedObject, ...]


@dataclass(frozen=True, slots=True)
class GcState:
    """A table with its regions, as one survey found them.

    Attributes:
        base: The base table's state, read after the region manifests.
        staged: Staged manifests of the base table, numbered by the version they were meant for.
        unnamed_batches: All records of Spark batch writes without a name.
    """

    table_uri: str
    base: BaseState
    regions: tuple[GcRegionState, ...]
    staged: tuple[NumberedObject, ...] = ()
    leases: tuple[Register, ...] = ()
    ledgers: tuple[Register, ...] = ()
    merge_staging: tuple[ObjectInfo, ...] = ()
    row_staging: tuple[ObjectInfo, ...] = ()
    unnamed_batches: tuple[ObjectInfo, ...] = ()
