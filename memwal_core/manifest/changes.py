"""The four changes a region manifest can go through; each touches the fields of its trigger only.

Pure functions from the stored version to the wanted one, None if nothing is to be done. The store
gives the result its version and commit id.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from memwal_core.errors import InvalidRequestError
from memwal_core.manifest.model import FlushedGeneration, RegionManifest


def claim_epoch(stored: RegionManifest) -> RegionManifest:
    """Take the region over: the epoch rises by one, which fences the present writer."""
    return replace(stored, writer_epoch=stored.writer_epoch + 1)


def record_flush(
    stored: RegionManifest, flushed: FlushedGeneration, replay_after_wal_id: int, wal_id_last_seen: int
) -> RegionManifest | None:
    """Record a flushed MemTable, which makes its directory part of the region.

    Args:
        stored: The newest version.
        flushed: The record; its generation is the current one.
        replay_after_wal_id: Last WAL entry whose rows are in it or in earlier ones.
        wal_id_last_seen: Last WAL entry that the writer knows; a lower value than the stored one
            is ignored.

    Returns:
        The wanted version; None if the same directory is recorded already (a repeated flush).

    Raises:
        InvalidRequestError: Another generation is next, the current one is recorded with another
            directory, or the replay pointer would move back. Reload the region.
    """
    if any(
        (known.generation, known.path) == (flushed.generation, flushed.path) for known in stored.flushed_generations
    ):
        return None
    if flushed.generation != stored.current_generation:
        raise InvalidRequestError(
            "another generation is next to be flushed",
            remedy="reload the region; flush generations in their order, each once",
            region_id=str(stored.region_id),
            generation=flushed.generation,
            expected=stored.current_generation,
        )
    if replay_after_wal_id < stored.replay_after_wal_id:
        raise InvalidRequestError(
            "a flush would move the replay pointer back",
            remedy="reload the region; its WAL entries up to the stored pointer are flushed",
            region_id=str(stored.region_id),
            replay_after_wal_id=replay_after_wal_id,
            stored=stored.replay_after_wal_id,
        )
    return replace(
        stored,
        replay_after_wal_id=replay_after_wal_id,
        wal_id_last_seen=max(stored.wal_id_last_seen, wal_id_last_seen, replay_after_wal_id),
        current_generation=stored.current_generation + 1,
        flushed_generations=(*stored.flushed_generations, flushed),
    )


def raise_wal_hint(stored: RegionManifest, wal_id: int) -> RegionManifest | None:
    """Note that a WAL entry exists, so that readers begin their search there.

    Args:
        stored: The newest version.
        wal_id: An entry that exists.

    Returns:
        The wanted version; None if the hint is as high already.
    """
    return replace(stored, wal_id_last_seen=wal_id) if wal_id > stored.wal_id_last_seen else None


def drain(stored: RegionManifest, generations: Collection[int]) -> RegionManifest | None:
    """Remove the records of generations, after which nobody may read their directories.

    Args:
        stored: The newest version.
        generations: To remove; those not recorded are ignored.

    Returns:
        The wanted version; None if none of them is recorded.
    """
    kept = tuple(entry for entry in stored.flushed_generations if entry.generation not in generations)
    return None if len(kept) == len(stored.flushed_generations) else replace(stored, flushed_generations=kept)
