"""Proving that a flushed MemTable still consists of the WAL entries that were flushed."""

from __future__ import annotations

from memwal_core.errors import DamagedError
from memwal_core.flushed.read.opening import open_generation, shared_files
from memwal_core.flushed.wal_files import wal_digest
from memwal_core.format.paths import LANCE_WAL_SUFFIX, generation_path, parse_numbered_name
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration
from memwal_core.storage import ObjectStore
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.text import show_count
from memwal_core.wal import LanceCodec

_REQUESTS = 8


def check_contents(store: ObjectStore, region_id: RegionId, recorded: FlushedGeneration) -> int:
    """Read every WAL entry that a flushed MemTable names by its address, and compare it with what was flushed.

    Each entry is verified by its checksum, and all of them by the digest in the region manifest. One that owns its
    files has no such entries.

    Returns:
        How many entries were read.

    Raises:
        ObjectNotFoundError: The flushed MemTable is gone.
        CorruptionError: An entry cannot be read.
        DamagedError: An entry is missing, has another size, or is another than was flushed.
    """
    uri = store.uri_of(generation_path(region_id, recorded.path))
    names = list(shared_files(open_generation(uri, store.storage_options)))
    if not names and recorded.wal_digest is None:
        return 0
    codec = LanceCodec({})

    def mark(name: str) -> str:
        return codec.read(store, region_id, parse_numbered_name(name, LANCE_WAL_SUFFIX)).attempt

    found = wal_digest(map_concurrently(mark, names, _REQUESTS))
    if found != recorded.wal_digest:
        expected = "no digest" if recorded.wal_digest is None else f"{recorded.wal_digest:016x}"
        raise DamagedError(
            "the WAL entries of a flushed MemTable are not those that were flushed",
            remedy="restore the region's wal directory from the same copy as its manifest",
            region_id=str(region_id),
            path=generation_path(region_id, recorded.path),
            cause=f"{show_count(len(names), 'entry')}: the digest is {found:016x}, the region manifest has {expected}",
        )
    return len(names)
