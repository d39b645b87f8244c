"""Giving a flushed MemTable the present address of its region's WAL, for readers of other programs."""

from __future__ import annotations

from memwal_core.flushed.read.opening import open_generation, shared_files, wal_of
from memwal_core.format.paths import generation_path, table_manifest_path
from memwal_core.format.table_manifest import next_with_base_path
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration
from memwal_core.storage.protocol import ObjectStore


def rebase_flushed(store: ObjectStore, region_id: RegionId, recorded: FlushedGeneration) -> bool:
    """Write a new version of a flushed MemTable that names its WAL entries at the table's present address.

    Our own readers use that address anyway; pylance's use the recorded one. Repeating it changes nothing.

    Returns:
        Whether a version was written; False if the address is right or the flushed MemTable owns its files.

    Raises:
        ObjectNotFoundError: The flushed MemTable is gone.
        CorruptionError: A file is missing or has another size, or the files are not the region's WAL entries.
        ObjectExistsError: Another process wrote the next version. Read it, then decide again.
    """
    path = generation_path(region_id, recorded.path)
    uri = store.uri_of(path)
    dataset = open_generation(uri, store.storage_options)
    if not shared_files(dataset):
        return False
    content = next_with_base_path(store.get(f"{path}/{table_manifest_path(dataset.version)}"), wal_of(uri))
    if content is None:
        return False
    store.put_if_absent(f"{path}/{table_manifest_path(dataset.version + 1)}", content)
    return True
