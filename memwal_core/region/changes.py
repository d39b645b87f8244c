"""The changes that a region manifest can undergo; each touches only the fields of its kind.

Pure functions from the stored version to the wanted one, None if there is nothing to do. The store
gives the result its version and commit id.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from memwal_core.errors import InvalidRequestError
from memwal_core.format.region_manifest.model import FlushedGeneration, RegionManifest


def claim_epoch(stored: RegionManifest) -> RegionManifest:
    """Take the region over: the epoch rises by one, which fences the present writer."""
    return replace(stored, writer_epoch=stored.writer_epoch + 1)


def record_flush(
    stored: RegionManifest, flushed: FlushedGeneration, replay_after_wal_id: int, wal_id_last_seen: int
) -> RegionManifest | None:
    """Record a flushed MemTable, which makes its directory part of the region; None if it is recorded already.

    ``replay_after_wal_id`` is the last WAL entry whose rows are in it or in earlier ones. A
    ``wal_id_last_seen`` below the stored one is ignored.

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
            "the generation is not the next to be flushed",
            remedy="reload the region; flush its generations in order, each once",
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
    """Record that a WAL entry exists, so that readers begin their search there; None if the hint is as high already."""
    return replace(stored, wal_id_last_seen=wal_id) if wal_id > stored.wal_id_last_seen else None


def drain(stored: RegionManifest, generations: Collection[int]) -> RegionManifest | None:
    """Remove the records of generations, whose directories must not be read from then on.

    Generations that are not recorded are ignored; None if none of them is.
    """
    kept = tuple(entry for entry in stored.flushed_generations if entry.generation not in generations)
    return None if len(kept) == len(stored.flushed_generations) else replace(stored, flushed_generations=kept)


def restore_generation(stored: RegionManifest, flushed: FlushedGeneration) -> RegionManifest | None:
    """Record a directory that was written anew for a flushed generation, in place of the present record if any.

    Only repairs do this. What the present record says beyond the project's own fields stays. None if it is recorded
    already.

    Raises:
        InvalidRequestError: The generation is not flushed yet; its rows are its writer's.
    """
    if flushed.generation >= stored.current_generation:
        raise InvalidRequestError(
            "a generation that is not flushed yet cannot be restored",
            remedy="leave it to its writer, whose WAL has its rows",
            region_id=str(stored.region_id),
            generation=flushed.generation,
            current_generation=stored.current_generation,
        )
    records = {each.generation: each for each in stored.flushed_generations}
    known = records.get(flushed.generation)
    if known is not None and known.path == flushed.path:
        return None
    records[flushed.generation] = replace(flushed, unknown=known.unknown) if known is not None else flushed
    return replace(stored, flushed_generations=tuple(records[number] for number in sorted(records)))
