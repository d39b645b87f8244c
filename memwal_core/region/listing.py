"""What one listing of ``_mem_wal/`` shows of every region, so that regions which have not changed need not be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import (
    LANCE_WAL_SUFFIX,
    MANIFEST_SUFFIX,
    MEM_WAL_DIRECTORY,
    VERSION_HINT_NAME,
    WAL_SUFFIXES,
    number_of,
)
from memwal_core.format.region_manifest.model import RegionManifest, RegionStatus
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.storage.protocol import ObjectInfo, ObjectStore

_OBJECTS = 4_000
_OBJECTS_PER_REGION = 40
"""A listing of more objects than these costs more than a look at the regions saves."""

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ListedRegion:
    """A region as a listing shows it.

    Attributes:
        version: The newest version of its manifest; 0 if there is none.
        touched: When that version, or the hint that names the newest one, was last written.
        wal_id: Its last WAL entry; 0 if there is none.
    """

    version: int = 0
    touched: datetime = _NEVER
    wal_id: int = 0
    wal_suffixes: frozenset[str] = frozenset()


def list_regions(store: ObjectStore) -> Mapping[RegionId, ListedRegion] | None:
    """Return what a listing shows of every region; None if there are too many objects.

    The newest version of a manifest is never deleted, and older ones in their order, so that a listing that shows a
    version and no newer one proves that there was none when it began. Of a WAL, the last entry is never deleted.
    """
    found: dict[RegionId, ListedRegion] = {}
    for count, info in enumerate(store.list_objects(MEM_WAL_DIRECTORY)):
        if count >= _OBJECTS + _OBJECTS_PER_REGION * len(found):
            return None
        name, _, rest = info.path.removeprefix(f"{MEM_WAL_DIRECTORY}/").partition("/")
        region_id = region_of(name)
        if region_id is not None:
            found[region_id] = _with(found.get(region_id, ListedRegion()), rest, info)
    return found


def objects_of(store: ObjectStore, regions: Collection[RegionId]) -> Mapping[RegionId, list[ObjectInfo]]:
    """Return the objects of some regions, by one listing of everything below ``_mem_wal/``."""
    objects: dict[RegionId, list[ObjectInfo]] = {region_id: [] for region_id in regions}
    for info in store.list_objects(MEM_WAL_DIRECTORY):
        region_id = region_of(info.path.removeprefix(f"{MEM_WAL_DIRECTORY}/").partition("/")[0])
        if region_id in objects:
            objects[region_id].append(info)
    return objects


def unchanged_since(
    rows: Iterable[RegionManifest], taken: datetime, listed: Mapping[RegionId, ListedRegion]
) -> dict[RegionId, RegionManifest]:
    """Return the regions of a region snapshot that are as it says, as manifests without unknown fields.

    Their manifests are still the newest, were not written again since, and know the last WAL entry. Only regions of the
    ``lance`` codec are among them, which no other client writes, and whose status follows from it: SEALED.

    Args:
        rows: The snapshot.
        taken: When the reading of the snapshot's manifests began.
        listed: What a listing that is younger than the snapshot shows.
    """
    return {
        row.region_id: replace(row, status=RegionStatus.SEALED)
        for row in rows
        if (seen := listed.get(row.region_id)) is not None
        and (seen.version, seen.wal_id) == (row.version, row.known_wal_id)
        and seen.touched <= taken
        and seen.wal_suffixes == {LANCE_WAL_SUFFIX}
    }


def _with(known: ListedRegion, path: str, info: ObjectInfo) -> ListedRegion:
    directory, _, file = path.partition("/")
    if directory == "manifest":
        if file == VERSION_HINT_NAME:
            return replace(known, touched=max(known.touched, info.modified))
        version = number_of(file, MANIFEST_SUFFIX) or 0
        if version >= known.version:
            return replace(known, version=version, touched=max(known.touched, info.modified))
    elif directory == "wal":
        for suffix in WAL_SUFFIXES:
            wal_id = number_of(file, suffix)
            if wal_id is not None:
                suffixes = known.wal_suffixes | {suffix}
                return replace(known, wal_id=max(known.wal_id, wal_id), wal_suffixes=suffixes)
    return known


def region_of(name: str) -> RegionId | None:
    """Return the region whose directory below ``_mem_wal/`` has a name; None if no region's has."""
    try:
        region_id = parse_region_id(name)
    except InvalidRequestError:
        return None
    return region_id if str(region_id) == name else None
