"""What a copy is: the same table, or another one."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from memwal_core.base_table import BaseTable
from memwal_core.coordination.freeze import MaintenanceRecord, Memory, Sighting, compare
from memwal_core.coordination.freeze.document import encode_record
from memwal_core.coordination.freeze.store import RECORD_SUFFIX
from memwal_core.coordination.freeze.watch import address_of, seen_region, seen_table
from memwal_core.format.paths import (
    MANIFEST_SUFFIX,
    RECORD_DIRECTORY,
    index_directory,
    manifest_directory,
    numbered_name,
    version_hint_path,
    writer_release_path,
)
from memwal_core.format.region_manifest.codec import encode_manifest
from memwal_core.format.table_manifest import MemWalEntry, replace_mem_wal_entry
from memwal_core.jobs.backup.pin import FoundRegion, FoundTable
from memwal_core.jobs.backup.plan import CopiedFile, CopyMoment
from memwal_core.register import FIRST_VERSION, hint_bytes

_EPOCHS_OF_A_TABLE = 1 << 32
"""Writers of one table and of its clones count epochs in ranges that do not meet."""

Identify = Callable[[FoundTable, BaseTable, BaseTable], CopyMoment]
"""Makes what is copied of what was found; the second argument is the original, the third one the copy to be."""


def with_same_identity(pinned: FoundTable, original: BaseTable, copy: BaseTable) -> CopyMoment:  # noqa: ARG001
    """Return the moment of a copy that is the same table: jobs go on with it at the original's address only."""
    record = pinned.record
    seen = _sighting(pinned, pinned.regions)
    if not compare(record.memory, seen):
        known = record.memory.learned(address_of(original), seen.table, seen.progress)
        record = replace(record, memory=known.learned_regions(seen.regions))
    return _moment(pinned, pinned.regions, record, original)


def with_own_identity(pinned: FoundTable, original: BaseTable, copy: BaseTable) -> CopyMoment:
    """Return the moment of a copy that is another table: other index id, epochs and record."""
    ids = copy.ids
    index_id = uuid.UUID(bytes=ids.commit_id(), version=4)
    above = _EPOCHS_OF_A_TABLE + int.from_bytes(ids.commit_id()[:4], "big")
    regions = tuple(_renewed(each, above, ids.commit_id()) for each in pinned.regions)
    epochs = {each.manifest.region_id: each.manifest.writer_epoch for each in regions}
    # Nobody can hold an epoch that was just made up, so that the first writer need not wait.
    releases = {
        writer_release_path(region_id): json.dumps({"released_epoch": epoch, "released": [[epoch, epoch]]}).encode()
        for region_id, epoch in epochs.items()
    }
    path, content = pinned.manifest
    entry = pinned.state.entry
    old = index_directory(entry.index_id) if entry is not None else ""
    new = index_directory(index_id)
    renamed = replace(
        pinned,
        manifest=(path, replace_mem_wal_entry(content, lambda each: MemWalEntry(index_id, each.payload))),
        files=tuple(_moved(each, old, new) for each in pinned.files),
        releases=releases,
    )
    seen = _sighting(pinned, regions)
    table = replace(seen.table, index_id=index_id) if seen.table is not None else None
    memory = Memory().learned(address_of(copy), table, seen.progress).learned_regions(seen.regions)
    return _moment(renamed, regions, MaintenanceRecord(memory), original)


def _sighting(pinned: FoundTable, regions: Iterable[FoundRegion]) -> Sighting:
    details = pinned.state.details
    seen = {each.manifest.region_id: seen_region(each.manifest, each.content) for each in regions}
    return Sighting(
        table=seen_table(pinned.state),
        progress=details.merged_generations if details is not None else {},
        listed=frozenset(seen),
        regions=seen,
    )


def _renewed(region: FoundRegion, above: int, commit_id: bytes) -> FoundRegion:
    known = region.manifest
    manifest = replace(known, version=known.version + 1, writer_epoch=known.writer_epoch + above, commit_id=commit_id)
    return replace(region, manifest=manifest, content=encode_manifest(manifest))


def _moved(file: CopiedFile, old: str, new: str) -> CopiedFile:
    inside = file.source.startswith(f"{old}/")
    return replace(file, target=f"{new}{file.source.removeprefix(old)}") if inside else file


def _moment(
    pinned: FoundTable, regions: tuple[FoundRegion, ...], record: MaintenanceRecord, original: BaseTable
) -> CopyMoment:
    documents = {**pinned.documents, **pinned.releases}
    for region in regions:
        manifest = region.manifest
        directory = manifest_directory(manifest.region_id)
        documents |= _versioned(directory, MANIFEST_SUFFIX, manifest.version, region.content)
    data = encode_record(record, original.ids.commit_id())
    documents |= _versioned(RECORD_DIRECTORY, RECORD_SUFFIX, FIRST_VERSION, data)
    return CopyMoment(
        version=pinned.state.version,
        rows=pinned.state.num_rows,
        regions=len(regions),
        generations=sum(len(each.manifest.flushed_generations) for each in regions),
        wal_entries=sum(each.wal_entries for each in regions),
        files=(*pinned.files, *(file for region in regions for file in region.files)),
        documents=documents,
        manifest=pinned.manifest,
    )


def _versioned(directory: str, suffix: str, version: int, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield f"{directory}/{numbered_name(version, suffix)}", data
    yield version_hint_path(directory), hint_bytes(version)
