"""Decide whether a region snapshot is due: a pure function of a survey and the settings."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType

import pyarrow as pa

from memwal_core.clock import at_millis, unix_millis
from memwal_core.format.memwal_index.rules import is_inline
from memwal_core.format.memwal_index.snapshot import build_snapshot
from memwal_core.ids import RegionId
from memwal_core.region import RegionManifest
from memwal_core.region.spec import RegionSpec
from memwal_core.settings import IndexSettings


class SnapshotReason(StrEnum):
    """Why a snapshot is published, or why not."""

    FIRST = "there is no snapshot yet"
    LOST = "the index has a new id, under which there is no snapshot file"
    CHANGED = "regions have changed"
    FORM = "the snapshot belongs in another form of storage"
    FORCED = "asked for although nothing has changed"
    UNCHANGED = "nothing has changed"
    DAMAGED = "a region is damaged, and there is no snapshot yet that could keep its row"
    FRESH = "the last snapshot is younger than the interval"

    @property
    def publishes(self) -> bool:
        """Whether a snapshot is published."""
        return self not in {SnapshotReason.UNCHANGED, SnapshotReason.FRESH, SnapshotReason.DAMAGED}


@dataclass(frozen=True, slots=True)
class SnapshotRegion:
    """A region's newest manifest, and its last WAL entry: the last that exists, or the known one if none follows it."""

    manifest: RegionManifest
    wal_tail: int


@dataclass(frozen=True, slots=True)
class SnapshotSurvey:
    """All regions of a table, and the snapshot that readers use now.

    Attributes:
        taken: Before the first region was read, in UTC.
        regions: Ordered by region id.
        stored: Its snapshot; None if there is none that can be reached.
        stored_inline: Whether that is inside the table manifest.
        stored_ts_millis: When it was taken, Unix milliseconds; 0 if never.
        stored_regions: How many regions the version announces.
        parked: Damaged regions, which keep the rows that they have, and what is wrong with them.
    """

    table_uri: str
    version: int
    taken: datetime
    regions: tuple[SnapshotRegion, ...]
    specs: tuple[RegionSpec, ...]
    stored: pa.Table | None = field(repr=False)
    stored_inline: bool
    stored_ts_millis: int
    stored_regions: int
    parked: Mapping[RegionId, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def claimed(self) -> datetime:
        """Until when every write is contained, which readers are told: as old as the oldest row."""
        if not self.parked:
            return self.taken
        return min(self.taken, at_millis(self.stored_ts_millis))


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """What a build does.

    Attributes:
        changed: Regions whose row differs from the present snapshot, new ones included.
        hints: Region -> WAL entry to which its hint is raised.
        is_inline: Whether the new snapshot goes into the table manifest.
        parked: Damaged regions, which keep the rows that they have, and what is wrong with them.
    """

    table_uri: str
    version: int
    reason: SnapshotReason
    regions: int
    changed: tuple[RegionId, ...]
    hints: Mapping[RegionId, int]
    is_inline: bool
    parked: Mapping[RegionId, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_due(self) -> bool:
        """Whether there is anything to write."""
        return self.reason.publishes

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "version": self.version,
            "reason": self.reason.value,
            "publishes": self.reason.publishes,
            "regions": self.regions,
            "changed": [str(region_id) for region_id in self.changed],
            "hints": {str(region_id): wal_id for region_id, wal_id in self.hints.items()},
            "inline": self.is_inline,
            "parked": {str(region_id): cause for region_id, cause in self.parked.items()},
        }


def plan_snapshot(survey: SnapshotSurvey, settings: IndexSettings, *, force: bool = False) -> SnapshotPlan:
    """Decide whether to publish a snapshot, and which hints to raise first.

    The snapshot copies each manifest as it is, merged generations included: merging does not change manifests,
    so readers drop those by the merge progress of the version that they read anyway. ``force`` publishes even
    if nothing has changed.
    """
    manifests = [region.manifest for region in survey.regions]
    hints = {
        region.manifest.region_id: region.wal_tail
        for region in survey.regions
        if region.wal_tail > region.manifest.wal_id_last_seen
    }
    inline = is_inline(len(manifests), threshold=settings.inline_snapshot_threshold)
    changed = _changed(build_snapshot(manifests, survey.specs), survey.stored)
    reason = _reason(survey, settings, has_news=bool(hints or changed), inline=inline)
    if force and not reason.publishes and reason is not SnapshotReason.DAMAGED:
        reason = SnapshotReason.FORCED
    return SnapshotPlan(
        table_uri=survey.table_uri,
        version=survey.version,
        reason=reason,
        regions=len(manifests),
        changed=changed,
        hints=hints if reason.publishes else {},
        is_inline=inline,
        parked=survey.parked,
    )


def is_same_snapshot(built: pa.Table, stored: pa.Table | None) -> bool:
    """Return whether a snapshot equals the stored one, in whatever order."""
    return stored is not None and not _changed(built, stored)


def _reason(survey: SnapshotSurvey, settings: IndexSettings, *, has_news: bool, inline: bool) -> SnapshotReason:
    if survey.stored is None and survey.parked:
        return SnapshotReason.DAMAGED
    if survey.stored is None:
        return SnapshotReason.LOST if survey.stored_regions else SnapshotReason.FIRST
    if not has_news and survey.stored_inline != inline and survey.stored_regions:
        return SnapshotReason.FORM
    if not has_news:
        return SnapshotReason.UNCHANGED
    age_s = (unix_millis(survey.taken) - survey.stored_ts_millis) / 1000
    # A snapshot from the future comes from another clock; waiting for it could take forever.
    return SnapshotReason.FRESH if 0 <= age_s < settings.snapshot_interval_s else SnapshotReason.CHANGED


def _changed(built: pa.Table, stored: pa.Table | None) -> tuple[RegionId, ...]:
    before = {} if stored is None else _rows_by_region(stored)
    now = _rows_by_region(built)
    return tuple(sorted(region for region in {*now, *before} if now.get(region) != before.get(region)))


def _rows_by_region(snapshot: pa.Table) -> dict[RegionId, Mapping[str, object]]:
    rows: Sequence[Mapping[str, object]] = snapshot.to_pylist()
    # Columns of specs that were added later are absent from older snapshots and empty in newer ones.
    return {
        RegionId(uuid.UUID(bytes=row["region_id"])): {  # type: ignore[arg-type]  # typed by its column
            name: value for name, value in row.items() if value is not None
        }
        for row in rows
    }
