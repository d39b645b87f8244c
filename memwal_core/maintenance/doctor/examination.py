"""What was seen of a table, as values that checks look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

import pyarrow as pa

from memwal_core.base_table import RetainedVersion, TableState
from memwal_core.base_table.partitions import PartitionSizes
from memwal_core.ids import RegionId
from memwal_core.index.legacy import LegacyIndex
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.ledger import RunVerdict
from memwal_core.manifest import RegionManifest


@dataclass(frozen=True, slots=True)
class ObservedGeneration:
    """A recorded flushed MemTable.

    Attributes:
        generation: Its number.
        path: Its directory as recorded.
        exists: Whether the directory holds anything.
        problem: Why its dataset cannot be opened; None if it can.
        missing_files: Data files that it names and that are not there, relative to the region.
    """

    generation: int
    path: str
    exists: bool
    problem: str | None = None
    missing_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedDirectory:
    """A directory of a region beside ``manifest`` and ``wal``.

    Attributes:
        name: Its name.
        size_bytes: Of all objects in it.
        newest: Last change of any of them, timezone UTC.
    """

    name: str
    size_bytes: int
    newest: datetime


@dataclass(frozen=True, slots=True)
class ObservedRegion:
    """One region.

    Attributes:
        region_id: Its id.
        manifest: The newest version; None if there is none or it cannot be read.
        problem: Why the manifest cannot be read; None if it can, or if there is none.
        versions: Manifest versions that exist, ascending.
        history: The newest manifest versions that can be read, ascending.
        wal: File suffix -> WAL entry -> when it was written.
        fences: Entries without rows, with which Lance's own writer marks the beginning of its epoch.
        directories: Directories of flushed MemTables, recorded or not.
        size_bytes: Of everything below the region's directory.
        generations: The recorded ones, ascending.
        keys: Sampled keys and region sources of recorded rows, named as in the base table.
        region_values: Region values that the spec computes for the sampled rows, as text; None if
            rows cannot be routed.
        own_value: The region's own value as text; None if it has none.
    """

    region_id: RegionId
    manifest: RegionManifest | None
    problem: str | None
    versions: tuple[int, ...]
    history: tuple[RegionManifest, ...]
    wal: Mapping[str, Mapping[int, datetime]]
    fences: frozenset[int]
    directories: tuple[ObservedDirectory, ...]
    size_bytes: int
    generations: tuple[ObservedGeneration, ...]
    keys: pa.Table | None = field(default=None, repr=False)
    region_values: tuple[str, ...] | None = None
    own_value: str | None = None

    @property
    def wal_ids(self) -> dict[int, datetime]:
        """All WAL entries of whatever codec."""
        return {wal_id: written for entries in self.wal.values() for wal_id, written in entries.items()}


@dataclass(frozen=True, slots=True)
class Examination:
    """Everything that checks may look at; reading it changed nothing.

    Attributes:
        table_uri: The table.
        now: When it was looked at, timezone UTC.
        state: Its newest version; None if that cannot be read.
        state_problem: Why not.
        retained: Versions that can still be opened.
        regions: Ordered by id.
        strangers: Names below ``_mem_wal/`` that are neither regions nor the project's own.
        legacy: The early index, one entry per version that has one, ascending.
        recorded_progress: Region -> highest merge progress that a finished merge reported.
        jobs: Job -> whether its past allows it to run.
        partitions: Partition sizes of the vector indexes.
        wal_tail_age_s: See ``DoctorSettings``.
        orphan_age_s: See ``GcSettings``.
        orphan_share: See ``DoctorSettings``.
        retrain_imbalance: See ``DoctorSettings``.
    """

    table_uri: str
    now: datetime
    state: TableState | None
    state_problem: str | None
    retained: tuple[RetainedVersion, ...]
    regions: tuple[ObservedRegion, ...]
    strangers: tuple[str, ...]
    legacy: tuple[LegacyIndex, ...]
    recorded_progress: Mapping[RegionId, int]
    jobs: Mapping[JobKey, RunVerdict] = field(default_factory=lambda: MappingProxyType({}))
    partitions: tuple[PartitionSizes, ...] = ()
    wal_tail_age_s: float = 1800.0
    orphan_age_s: float = 259_200.0
    orphan_share: float = 0.1
    retrain_imbalance: float = 10.0

    def readable(self) -> Iterator[tuple[ObservedRegion, RegionManifest]]:
        """Yield the regions whose manifest can be read."""
        for region in self.regions:
            if region.manifest is not None:
                yield region, region.manifest

    def merged(self, region_id: RegionId) -> int:
        """Return the merge progress of a region; 0 if there is no index to say."""
        if self.state is None or self.state.details is None:
            return 0
        return self.state.details.merged_generation(region_id)
