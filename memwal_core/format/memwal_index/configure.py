"""Changes of the configuration part of the MemWAL index, as pure functions (IDX-41).

Each keeps merge progress, catch-up of the remaining indexes, snapshots and unknown fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index.details import MemWalIndexDetails, is_internal_index
from memwal_core.format.region_spec.model import RegionSpec
from memwal_core.ids import RegionId


def with_progress(details: MemWalIndexDetails, progress: Mapping[RegionId, int]) -> MemWalIndexDetails:
    """Return the details with other merge progress of some regions; catch-up stays at or below it.

    A region that has merged nothing any more may be gone, so that the region snapshot, which may know it, goes, too:
    without one, readers read the region manifests.

    Args:
        details: Those of the version that the decision was made on.
        progress: Region -> highest generation that counts as merged.
    """
    if 0 in progress.values():
        details = replace(details, snapshot_ts_millis=0, num_regions=0, inline_snapshots=None)
    merged = {**details.merged_generations, **progress}
    catchup = {
        name: {region_id: min(covered, merged.get(region_id, 0)) for region_id, covered in entries.items()}
        for name, entries in details.index_catchup.items()
    }
    return replace(
        details,
        merged_generations=MappingProxyType({region_id: number for region_id, number in merged.items() if number}),
        index_catchup=MappingProxyType(
            {name: {region_id: n for region_id, n in entries.items() if n} for name, entries in catchup.items()}
        ),
    )


def with_region_spec(details: MemWalIndexDetails, spec: RegionSpec) -> MemWalIndexDetails:
    """Return the details with one more region spec; its id must be new, because ids are never reused."""
    if any(known.spec_id == spec.spec_id for known in details.region_specs):
        raise InvalidRequestError(
            "this region spec id is taken",
            remedy="use an id above all existing ones",
            spec_id=spec.spec_id,
            taken=[known.spec_id for known in details.region_specs],
        )
    return replace(details, region_specs=(*details.region_specs, spec))


def with_maintained_index(details: MemWalIndexDetails, name: str) -> MemWalIndexDetails:
    """Return the details with one more index that MemTables maintain; unchanged if it is listed.

    ``check_maintained_indexes`` decides whether the table allows the name.
    """
    if name in details.maintained_indexes:
        return details
    return replace(details, maintained_indexes=(*details.maintained_indexes, name))


def without_maintained_index(details: MemWalIndexDetails, name: str) -> MemWalIndexDetails:
    """Return the details without a listed maintained index and without its catch-up entry."""
    if name not in details.maintained_indexes:
        raise InvalidRequestError(
            "this index is not maintained by MemTables",
            remedy="name one of the listed indexes",
            index=name,
            listed=list(details.maintained_indexes),
        )
    catchup = {index: progress for index, progress in details.index_catchup.items() if index != name}
    return replace(
        details,
        maintained_indexes=tuple(index for index in details.maintained_indexes if index != name),
        index_catchup=MappingProxyType(catchup),
    )


def check_maintained_indexes(
    names: Collection[str], *, existing: Collection[str], key_indexes: Collection[str]
) -> None:
    """Check the names that MemTables are to maintain against the indexes of the table.

    ``key_indexes`` are those on exactly the primary key, which are maintained without being listed.
    """
    if len(set(names)) != len(names):
        raise InvalidRequestError(
            "a maintained index is listed twice", remedy="list each index once", listed=list(names)
        )
    for name in names:
        if is_internal_index(name) or name not in existing:
            raise InvalidRequestError(
                "the base table has no such index",
                remedy="create the index first, or correct the name",
                index=name,
                existing=sorted(index for index in existing if not is_internal_index(index)),
            )
        if name in key_indexes:
            raise InvalidRequestError(
                "the primary key's own index must not be listed",
                remedy="leave it out; MemTables always maintain it",
                index=name,
            )
