"""The region manifest as values, independent of how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from memwal_core.ids import RegionId

FIRST_GENERATION = 1
BASE_TABLE_GENERATION = -1
"""The base table counts as this generation, older than every MemTable (FMT-46)."""


class RegionStatus(IntEnum):
    """Whether pylance's own writer may claim the region (decision 0002).

    A SEALED region refuses pylance's writers. Regions of the ``lance`` codec are always SEALED,
    because a pylance writer would not see their WAL.
    """

    ACTIVE = 0
    SEALED = 1


@dataclass(frozen=True, slots=True)
class FlushedGeneration:
    """One recorded flushed MemTable.

    Attributes:
        generation: From 1, higher is newer.
        path: Directory name relative to the region directory, used as recorded.
        in_memory_bytes: Payload size of its rows as the writer counted it; None if unknown.
        physical_rows: Rows of its files, older duplicates of a key included; None if unknown.
        wal_digest: Of the WAL entries that are its files by their address; None if it owns all of its files.
        unknown: Wire bytes of fields this version does not know, kept on rewrite.
    """

    generation: int
    path: str
    in_memory_bytes: int | None = None
    physical_rows: int | None = None
    wal_digest: int | None = None
    unknown: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class RegionManifest:
    """One immutable version of a region's state; the source of truth for that region.

    Attributes:
        version: From 1; equals the number in the file name.
        region_spec_id: Spec that created the region; 0 = manual. Never changes.
        region_field_values: Field id -> value as little-endian Arrow scalar bytes; empty bytes are a
            value, an absent id is NULL. Never changes.
        writer_epoch: Fencing token of the writer; only grows.
        replay_after_wal_id: Last WAL entry contained in a flushed MemTable; 0 = none.
        wal_id_last_seen: Hint of the last WAL entry, may lag.
        current_generation: Generation of the oldest MemTable not yet flushed.
        flushed_generations: Ascending, unique, each below ``current_generation``.
        commit_id: Marks the attempt that wrote this version; empty on foreign manifests.
        unknown: Wire bytes of fields this version does not know, kept on rewrite.
    """

    region_id: RegionId
    version: int = 1
    region_spec_id: int = 0
    region_field_values: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    writer_epoch: int = 0
    replay_after_wal_id: int = 0
    wal_id_last_seen: int = 0
    current_generation: int = FIRST_GENERATION
    flushed_generations: tuple[FlushedGeneration, ...] = ()
    status: RegionStatus = RegionStatus.ACTIVE
    commit_id: bytes = field(default=b"", repr=False, compare=False)
    unknown: bytes = field(default=b"", repr=False)

    @property
    def known_wal_id(self) -> int:
        """The last WAL entry that the manifest knows of; 0 if it knows none."""
        return max(self.replay_after_wal_id, self.wal_id_last_seen)
