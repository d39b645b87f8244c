"""What is wrong with a WAL entry, judged by its bytes."""

from __future__ import annotations

from memwal_core.errors import CorruptionError
from memwal_core.ids import RegionId
from memwal_core.storage.protocol import ObjectStore
from memwal_core.wal.codec import codec_for_suffix
from memwal_core.wal.entry import entry_bytes


def damage_of_entry(store: ObjectStore, region_id: RegionId, wal_id: int, suffix: str) -> str:
    """Read an entry whole; return what is wrong with it, empty if all of its bytes are as they were written.

    Bytes that only Lance can read are read by another process, which may die of them.
    """
    try:
        data = entry_bytes(store, region_id, wal_id, suffix)
        codec_for_suffix(suffix, {}).decode(store, region_id, wal_id, data, apart=True)
    except CorruptionError as error:
        return str(error.facts.get("cause", error.what))
    return ""
