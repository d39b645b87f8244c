"""What was observed of a table, as the values that the checks read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa

from memwal_core.base_table import RetainedVersion, TableState
from memwal_core.coordination.freeze import MaintenanceRecord
from memwal_core.format.memwal_index.legacy import LegacyIndex
from memwal_core.ids import RegionId
from memwal_core.jobs.readability.files import BaseFiles, FileProblem
from memwal_core.jobs.readability.indexes import IndexFiles
from memwal_core.observe.status import TableStatus, WalTail
from memwal_core.region import RegionManifest


@dataclass(frozen=True, slots=True)
class ObservedGeneration:
    """A recorded flushed MemTable.

    Attributes:
        problem: Why its dataset cannot be opened; None if it can.
        damage: Files that are missing or cannot be read, with what is wrong with them.
        unmergeable: Why a merge cannot take its columns; empty if it can, or if it is merged.
        recorded_address: Where it says that its WAL entries are, if they are not there; empty otherwise.
    """

    generation: int
    path: str
    exists: bool
    problem: str | None = None
    damage: tuple[FileProblem, ...] = ()
    unmergeable: str = ""
    recorded_address: str = ""


@dataclass(frozen=True, slots=True)
class ObservedDirectory:
    """A directory of a region beside ``manifest`` and ``wal``. Size and time are known only of a deep look.

    Attributes:
        newest: Last change of any object in it, in UTC.
    """

    name: str
    size_bytes: int = 0
    newest: datetime | None = None


@dataclass(frozen=True, slots=True)
class ExaminedRegion:
    """One region. A look that is not deep sees of its WAL only the end, and of directories only the names.

    Attributes:
        manifest: The newest version; None if there is none or it cannot be read.
        problem: Why the manifest cannot be read; None if it can, or if there is none.
        manifests: Manifest version -> when it was written, of those that exist.
        history: The newest manifest versions that can be read, ascending.
        wal: File suffix -> WAL entries.
        directories: Directories of flushed MemTables, recorded or not.
        size_bytes: Of everything below the region's directory.
        generations: The recorded ones, ascending.
        keys: Sampled keys and region sources of recorded rows, named as in the base table.
        region_values: What the spec computes for the sampled rows, as text; None if rows cannot be routed.
        own_value: The region's own value as text; None if it has none.
        tail: The end of its WAL; None without a manifest.
        damaged_entries: Unflushed WAL entry -> what is wrong with it; nothing if the look was not deep.
    """

    region_id: RegionId
    manifest: RegionManifest | None
    problem: str | None
    manifests: Mapping[int, datetime]
    history: tuple[RegionManifest, ...]
    wal: Mapping[str, Collection[int]]
    directories: tuple[ObservedDirectory, ...]
    size_bytes: int
    generations: tuple[ObservedGeneration, ...]
    keys: pa.Table | None = field(default=None, repr=False)
    region_values: tuple[str, ...] | None = None
    own_value: str | None = None
    tail: WalTail | None = None
    damaged_entries: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def versions(self) -> tuple[int, ...]:
        """Manifest versions that exist, ascending."""
        return tuple(sorted(self.manifests))

    @property
    def wal_ids(self) -> frozenset[int]:
        """All WAL entries of whatever codec."""
        return frozenset().union(*self.wal.values())


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that checks read; collecting it changed nothing.

    Attributes:
        now: When it was looked at, timezone UTC.
        state: Its newest version; None if that cannot be read.
        state_problem: Why not.
        retained: Versions that can still be opened; none if the look was not deep.
        regions: Ordered by id.
        strangers: Names below ``_mem_wal/`` that are neither regions nor the project's own.
        legacy: The early MemWAL index, one entry per version that has one, ascending.
        record: What earlier runs saw, and what froze the table; None if no job ever ran, or if it cannot be read.
        record_problem: Why the record cannot be read; empty if it can.
        orphan_age_s: See ``GcSettings``.
        orphan_share: See ``DoctorSettings``.
        retrain_imbalance: See ``DoctorSettings``.
        deep: Whether every object was listed and every flushed MemTable opened.
        status: Of the regions whose manifests can be read; None without a MemWAL index.
        torn: Newest manifests of the base table that are torn: path -> what is wrong.
        indexes: Those of the newest version; nothing if the look was not deep.
        base_files: The files of the newest version; nothing if the look was not deep.
        obstacle: Why no merge can take this table's rows at all; empty if one can.
    """

    table_uri: str
    now: datetime
    state: TableState | None
    state_problem: str | None
    retained: tuple[RetainedVersion, ...]
    regions: tuple[ExaminedRegion, ...]
    strangers: tuple[str, ...]
    legacy: tuple[LegacyIndex, ...]
    record: MaintenanceRecord | None = None
    indexes: IndexFiles = field(default_factory=IndexFiles)
    orphan_age_s: float = 259_200.0
    orphan_share: float = 0.1
    retrain_imbalance: float = 10.0
    deep: bool = True
    status: TableStatus | None = None
    torn: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    base_files: BaseFiles = field(default_factory=BaseFiles)
    obstacle: str = ""
    record_problem: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether this is a Lance table that MemWAL was never enabled on."""
        return self.state is not None and self.state.entry is None and not self.regions

    def readable(self) -> Iterator[tuple[ExaminedRegion, RegionManifest]]:
        """Yield the regions whose manifest can be read."""
        for region in self.regions:
            if region.manifest is not None:
                yield region, region.manifest

    def listed(self) -> Iterator[tuple[ExaminedRegion, RegionManifest]]:
        """Yield the same if their WALs were listed, else nothing."""
        return self.readable() if self.deep else iter(())

    def merged(self, region_id: RegionId) -> int:
        """Return the merge progress of a region; 0 if the table has no MemWAL index."""
        if self.state is None or self.state.details is None:
            return 0
        return self.state.details.merged_generation(region_id)
