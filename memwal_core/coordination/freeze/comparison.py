"""What contradicts the memory of a table. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from memwal_core.coordination.freeze.cause import FreezeCause
from memwal_core.coordination.freeze.memory import ANY_DIRECTORY, Memory, SeenRegion, SeenTable
from memwal_core.ids import RegionId

FLUSHED = "flushed"
"""In the evidence: region -> newest generation that was flushed when the table froze."""

MERGED_BEFORE = "merged_before"
"""In the evidence: the merge progress seen before; region -> progress where the whole table froze."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was just read of a table; None where nothing was.

    Attributes:
        table: The newest version.
        progress: Region -> merge progress of that version.
        interrupted_at: A version without the MemWAL index, made since the one that is remembered.
        unproven: Whether versions in between are gone, so that an interruption cannot be ruled out.
        published: Whether the MemWAL index holds a region snapshot, which only a job publishes, after it compared.
        rewritten: Whether the version that is remembered was replaced by another one.
        missing: Regions that were created, as the marks of it say, and have no directory.
        regions: Region -> its newest manifest.
        replaced: Regions whose remembered manifest was replaced, or is missing among older ones.
    """

    address: str | None = None
    table: SeenTable | None = None
    progress: Mapping[RegionId, int] = field(default_factory=lambda: MappingProxyType({}))
    interrupted_at: int | None = None
    unproven: bool = False
    published: bool = False
    rewritten: bool = False
    listed: Collection[RegionId] | None = None
    missing: Collection[RegionId] = ()
    regions: Mapping[RegionId, SeenRegion] = field(default_factory=lambda: MappingProxyType({}))
    replaced: Collection[RegionId] = ()


@dataclass(frozen=True, slots=True)
class Contradiction:
    """What cannot be true of one table at once.

    Attributes:
        region_id: The region concerned; None for the whole table.
    """

    cause: FreezeCause
    evidence: Mapping[str, object]
    region_id: RegionId | None = None


def compare(memory: Memory, seen: Sighting) -> tuple[Contradiction, ...]:
    """Return every contradiction between the memory and what was read after it."""
    return (*_address(memory, seen), *_table(memory, seen), *_regions(memory, seen))


def flushed_generations(seen: Sighting) -> dict[str, int]:
    """Return each region's newest generation that was flushed, as evidence."""
    return {str(region_id): each.current_generation - 1 for region_id, each in sorted(seen.regions.items())}


def _address(memory: Memory, seen: Sighting) -> Iterator[Contradiction]:
    if seen.address is not None and memory.addresses and seen.address not in memory.addresses:
        yield Contradiction(
            FreezeCause.ADDRESS_CHANGED, {"address": seen.address, "known_addresses": list(memory.addresses)}
        )


def _table(memory: Memory, seen: Sighting) -> Iterator[Contradiction]:
    known, now = memory.table, seen.table
    if known is None or now is None:
        return
    if (
        now.version < known.version
        or seen.rewritten
        or (now.version == known.version and now.timestamp != known.timestamp)
    ):
        evidence = {
            "version": now.version,
            "made": now.timestamp.isoformat(),
            "seen_version": known.version,
            "seen_made": known.timestamp.isoformat(),
        }
        yield Contradiction(FreezeCause.TABLE_WENT_BACK, evidence)
    if known.index_id is not None:
        yield from _index(now, memory, seen)


def _index(now: SeenTable, memory: Memory, seen: Sighting) -> Iterator[Contradiction]:
    before = {str(region_id): merged for region_id, merged in sorted(memory.progress.items()) if merged}
    present = {str(region_id): merged for region_id, merged in sorted(seen.progress.items()) if merged}
    evidence: dict[str, object] = {"version": now.version, MERGED_BEFORE: before, FLUSHED: flushed_generations(seen)}
    if now.index_id is None:
        yield Contradiction(FreezeCause.INDEX_GONE, evidence)
    elif seen.interrupted_at is not None or (seen.unproven and not _goes_on(before, present, seen)):
        evidence |= {"version_without_index": seen.interrupted_at, "merged": present}
        yield Contradiction(FreezeCause.INDEX_MADE_ANEW, evidence)
    else:
        yield from _progress(now, memory, seen)


def _goes_on(before: Mapping[str, int], present: Mapping[str, int], seen: Sighting) -> bool:
    """Return whether the index is the same one although versions in between are gone.

    Progress that went on shows it. Where nothing was merged before, a region snapshot does: besides marked merges of
    Lance, only publishing one gives the index a new id, and a job would have found an index that was made anew first.
    """
    return bool(before and present) or (not before and seen.published)


def _progress(now: SeenTable, memory: Memory, seen: Sighting) -> Iterator[Contradiction]:
    for region_id, highest in sorted(memory.progress.items()):
        merged = seen.progress.get(region_id, 0)
        if merged < highest:
            evidence: dict[str, object] = {"version": now.version, "merged": merged, MERGED_BEFORE: highest}
            if region_id in seen.regions:
                evidence[FLUSHED] = {str(region_id): seen.regions[region_id].current_generation - 1}
            yield Contradiction(FreezeCause.PROGRESS_WENT_BACK, evidence, region_id)


def _regions(memory: Memory, seen: Sighting) -> Iterator[Contradiction]:
    vanished = set(seen.missing)
    if seen.listed is not None:
        vanished |= (memory.regions.keys() | memory.absent) - set(seen.listed)
    for region_id in sorted(vanished):
        merged = max(memory.progress.get(region_id, 0), seen.progress.get(region_id, 0))
        gone = {**_known_facts(memory, region_id), MERGED_BEFORE: merged}
        yield Contradiction(FreezeCause.REGION_VANISHED, gone, region_id)
    for region_id, now in sorted(seen.regions.items()):
        known = memory.regions.get(region_id)
        evidence: dict[str, object] = {
            "manifest_version": now.version,
            "current_generation": now.current_generation,
            FLUSHED: {str(region_id): now.current_generation - 1},
        }
        merged = seen.progress.get(region_id, 0)
        cause = None
        if known is not None:
            cause = _changed(known, now, replaced=region_id in seen.replaced)
        elif region_id in memory.absent:
            cause = FreezeCause.REGION_BEGAN_AGAIN
        if cause is not None:
            yield Contradiction(cause, {**evidence, **_known_facts(memory, region_id)}, region_id)
        elif merged >= now.current_generation:
            yield Contradiction(FreezeCause.PROGRESS_AHEAD, {"merged": merged, **evidence}, region_id)


def _known_facts(memory: Memory, region_id: RegionId) -> dict[str, object]:
    known = memory.regions.get(region_id)
    return {
        "seen_manifest_version": known.version if known is not None else None,
        "seen_current_generation": known.current_generation if known is not None else None,
        MERGED_BEFORE: memory.progress.get(region_id, 0),
    }


def _changed(known: SeenRegion, now: SeenRegion, *, replaced: bool) -> FreezeCause | None:
    """Return what became of a region whose manifest does not follow the one that is remembered; None if it does."""
    other = any(_is_other(known, number, path) for number, path in now.generations.items())
    if other or replaced or (now.version == known.version and _differ(now.digest, known.digest)):
        return FreezeCause.REGION_BEGAN_AGAIN
    if now.version < known.version or now.current_generation < known.current_generation:
        empty = now.current_generation == 1 and known.current_generation > 1
        return FreezeCause.REGION_BEGAN_AGAIN if empty else FreezeCause.REGION_WENT_BACK
    return None


def _is_other(known: SeenRegion, generation: int, path: str) -> bool:
    """Return whether a recorded generation is not the one that is remembered, or came back after it was drained."""
    if generation >= known.current_generation:
        return False
    return known.generations.get(generation) not in (path, ANY_DIRECTORY)


def _differ(now: str, known: str) -> bool:
    return bool(now and known) and now != known
