"""Comparing what a run reads with what was seen before, as it reads it: no request of an idle run is its own.

What is remembered: the record's ``Memory`` (address, newest version and merge progress of the table, newest manifest of
each region). A run begins with it and sets aside what it reads itself, which becomes part of the record when it ends
well (``remember``). Two things count at once: the newest version that contradicted nothing takes the place of the
remembered one, which the run itself may remove, and a region that merged before it was listed must stay absent.

What is compared: the address as the run begins, and then each read of the newest version (``on_state``), of a region's
newest manifest (``on_manifest``) and of the list of regions (``on_regions``, and ``on_missing`` beside the marks of
their creation), whoever asked for it, each as one ``Sighting``. A table without a record is compared with the versions
that it still has (``first_look``).

What freezes: a contradiction for whose cause and region no freeze is active yet, which a second look finds again, made
anew and compared with the record as it then is. If its cause stops the whole table, the read raises ``FrozenError``, as
``check`` does from then on; else the region is parked, and the read goes on.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import RLock

from memwal_core.base_table import BaseTable, RetainedVersion, TableReader, TableState, retained_versions
from memwal_core.coordination.freeze.cause import FreezeCause, FreezeScope
from memwal_core.coordination.freeze.comparison import FLUSHED, Contradiction, Sighting, compare
from memwal_core.coordination.freeze.document import MaintenanceRecord
from memwal_core.coordination.freeze.memory import Memory, SeenRegion, SeenTable
from memwal_core.coordination.freeze.store import FreezeStore, refuse_frozen
from memwal_core.errors import CorruptionError, MemwalError, ObjectNotFoundError
from memwal_core.format.paths import manifest_path
from memwal_core.ids import RegionId
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.region.census import region_births
from memwal_core.register import FIRST_VERSION
from memwal_core.storage import StoreKind
from memwal_core.storage.concurrent import at_most, map_concurrently

_CLOCKS_DIFFER = timedelta(seconds=60)
_HEEDED_AFTER_S = 30.0
"""A freeze of others stops a run that is under way at its first write after so long: a run may take hours."""

_SOME_INDEX = uuid.UUID(int=0)
_MOST_VERSIONS = 100_000
"""Made since a table was last seen; a busy table makes a few hundred a day."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A table whose reads are compared; both parts tell the watch what they read."""

    base: BaseTable
    manifests: ManifestStore


class HistoryWatch:
    """Compares what one run reads of a table with the maintenance record, and freezes the table when they contradict.

    What looks wrong is read again before it counts, because a run may catch two halves of one change. A region that
    vanished is recorded, too, and the run goes on without it. Safe to share between threads.
    """

    def __init__(self, base: BaseTable, manifests: ManifestStore, freezes: FreezeStore, by: str) -> None:
        self._base = base
        self._manifests = manifests
        self._freezes = freezes
        self._by = by
        self._lock = RLock()
        self._record: tuple[MaintenanceRecord | None] | None = None
        self._memory = Memory()
        self._confirmed: SeenTable | None = None
        self._table: SeenTable | None = None
        self._progress: Mapping[RegionId, int] = {}
        self._regions: dict[RegionId, SeenRegion] = {}
        self._absent: frozenset[RegionId] = frozenset()
        self._is_frozen = False
        self._looked = base.clock.monotonic()
        self._parked: frozenset[tuple[FreezeCause, RegionId | None]] = frozenset()

    def read_record(self) -> None:
        """Read the record ahead of ``begin``, which reads it again, and raises, if this fails."""
        with suppress(MemwalError):
            self._record = (self._freezes.load(),)

    def begin(self) -> ComparedTable:
        """Read the record, and return the table to work on.

        Raises:
            FrozenError: The table is frozen, or was found to be another one than before.
            CorruptionError: The record cannot be read.
        """
        record = self._record[0] if self._record is not None else self._freezes.load()
        refuse_frozen(self._base.uri, record.active if record is not None else ())
        if record is not None:
            self._memory = record.memory
            self._parked = frozenset(each.subject for each in record.active)
            self._freeze_if_contradicted(Sighting(address=address_of(self._base)))
        if record is None or record.memory.table is None:
            self._freeze(first_look(self._base.observed(self.on_state), self._manifests.observed(self)))
        return self._compared()

    def known_of(self, regions: Collection[RegionId]) -> Memory:
        """Return what this run compares some regions with, for another process that works on them in its name."""
        return self._known().of_regions(regions)

    def resume(self, known: Memory) -> ComparedTable:
        """Go on in another process with what the run compares with, and return the table to work on.

        Args:
            known: What ``known_of`` returned in the process where the run began.

        Raises:
            FrozenError: The table is frozen.
            CorruptionError: The record cannot be read.
        """
        active = self._freezes.active()
        refuse_frozen(self._base.uri, active)
        self._memory = known
        self._parked = frozenset(each.subject for each in active)
        return self._compared()

    def _compared(self) -> ComparedTable:
        manifests = self._manifests.observed(self).remembering(lambda: self._memory.regions.keys())
        base = self._base.observed(self.on_state).remembering(self._versions)
        return ComparedTable(base, manifests)

    def _versions(self) -> Mapping[RegionId, int]:
        return {region_id: each.version for region_id, each in self._memory.regions.items()}

    def on_state(self, state: TableState) -> None:
        """Compare the newest version of the table, which was just read."""
        seen = sighting_of(state)
        table, progress = seen_table(state), seen.progress
        with self._lock:
            if self._table is not None and self._table.version > table.version:
                return
            self._table, self._progress = table, progress
            regions = dict(self._regions)
        self._freeze_if_contradicted(with_index_history(self._base, self._known(), replace(seen, regions=regions)))
        with self._lock:
            self._confirmed = table

    def on_manifest(self, manifest: RegionManifest, data: bytes) -> None:
        """Compare the newest manifest of a region, which was just read."""
        seen, region_id = seen_region(manifest, data), manifest.region_id
        with self._lock:
            known = self._memory.regions.get(region_id)
            progress = {region_id: self._progress.get(region_id, 0)}
            self._regions[region_id] = seen
        replaced = (region_id,) if known is not None and is_replaced(self._manifests, region_id, known, seen) else ()
        self._freeze_if_contradicted(Sighting(progress=progress, regions={region_id: seen}, replaced=replaced))

    def on_regions(self, listed: Collection[RegionId]) -> None:
        """Compare the regions that were just listed."""
        with self._lock:
            # Progress that was read before: what was merged by then had a directory.
            merged = {region_id for region_id, generation in self._progress.items() if generation}
            self._absent |= merged - set(listed) - self._memory.regions.keys()
        self._freeze_if_contradicted(Sighting(listed=listed))

    def on_missing(self, regions: Collection[RegionId]) -> None:
        """Compare the regions that were created, and are not listed: nothing else may remember one before its merge."""
        self._freeze_if_contradicted(Sighting(missing=regions))

    def check(self) -> None:
        """Require that this run has not found the table frozen; costs no request.

        Raises:
            FrozenError: It has.
        """
        if self._is_frozen:
            refuse_frozen(self._base.uri, self._freezes.active(), found_now=True)

    def check_record(self) -> None:
        """Require, before a write, that nobody has frozen the table meanwhile; mostly costs no request.

        Raises:
            FrozenError: Somebody has.
            MemwalError: The record cannot be read.
        """
        self.check()
        now = self._base.clock.monotonic()
        if now - self._looked >= _HEEDED_AFTER_S:
            refuse_frozen(self._base.uri, self._freezes.active())
            self._looked = now

    def read_again(self) -> None:
        """Compare the table as the run leaves it.

        Raises:
            FrozenError: It contradicts the record.
            MemwalError: It cannot be read.
        """
        self.check()
        self.on_state(self._base.state())

    def remember(self) -> None:
        """Add what was read to the record, if it is new.

        Raises:
            MemwalError: The record cannot be written; the next run learns it.
        """
        if self._learned(self._memory) != self._memory:
            self._freezes.update(lambda record: replace(record, memory=self._learned(record.memory)))

    def _learned(self, memory: Memory) -> Memory:
        known = memory.learned(address_of(self._base), self._table, self._progress)
        return known.learned_absent(self._absent).learned_regions(self._regions)

    def _freeze_if_contradicted(self, seen: Sighting) -> None:
        """Freeze the table if a sighting contradicts the memory, and a second look confirms it."""
        suspects = self._not_parked(compare(self._known(), seen))
        if not suspects:
            return
        with self._lock:
            self.check()
            record = self._freezes.load(again=True)
            refuse_frozen(self._base.uri, record.active if record is not None else ())
            self._memory = record.memory if record is not None else Memory()
            again = self._second_look(suspects)
            missing = set(seen.missing) - set(again.listed or ())
            self._freeze(self._not_parked(compare(self._known(), replace(again, missing=missing))))

    def _not_parked(self, found: Iterable[Contradiction]) -> tuple[Contradiction, ...]:
        """Return what no active freeze is about."""
        return tuple(each for each in found if (each.cause, each.region_id) not in self._parked)

    def _freeze(self, found: Iterable[Contradiction]) -> None:
        contradictions = tuple(found)
        if not contradictions:
            return
        self._is_frozen = any(each.cause.facts.scope is FreezeScope.TABLE for each in contradictions)
        what = "the table is frozen" if self._is_frozen else "regions are parked"
        told = [
            {"cause": each.cause.value, "region": str(each.region_id or ""), **each.evidence} for each in contradictions
        ]
        _log.error("%s [table=%s, found=%s]", what, self._base.uri, told)
        stored = self._freezes.freeze(contradictions, self._by)
        refuse_frozen(self._base.uri, stored, found_now=True)
        self._parked |= {each.subject for each in stored}

    def _second_look(self, suspects: Iterable[Contradiction]) -> Sighting:
        """Read anew what the suspects are about: the table first, so that no region looks behind its progress."""
        regions = {each.region_id for each in suspects}
        named = None if None in regions else {each for each in regions if each is not None}
        return look(self._base, self._manifests, self._known(), named)

    def _known(self) -> Memory:
        """Return the memory with the version that this run has compared: it may itself remove older ones."""
        confirmed, known = self._confirmed, self._memory.table
        memory = self._memory.learned_absent(self._absent)
        if confirmed is None or known is None or confirmed.version <= known.version:
            return memory
        return replace(memory, table=confirmed)


def address_of(base: BaseTable) -> str:
    """Return the address of a table as it is remembered: links of a file system are followed."""
    return os.path.realpath(base.uri) if base.store.kind is StoreKind.LOCAL else base.uri


def look(
    base: BaseTable, manifests: ManifestStore, memory: Memory, regions: Collection[RegionId] | None = None
) -> Sighting:
    """Read the newest version of a table, and then the manifests of some or all regions.

    A region whose manifest cannot be read is left out: damage has its own verdicts.
    """
    state = base.state()
    listed = manifests.region_ids()
    chosen = [each for each in listed if regions is None or each in regions]
    concurrency = at_most(base.store.kind, len(chosen), base.settings.storage.concurrency)
    read = map_concurrently(lambda region_id: _read_region(manifests, region_id), chosen, concurrency)
    found = {region_id: seen for region_id, seen in zip(chosen, read, strict=True) if seen is not None}
    known = [each for each in found if each in memory.regions]
    replaced = map_concurrently(
        lambda each: is_replaced(manifests, each, memory.regions[each], found[each]), known, concurrency
    )
    seen = replace(
        sighting_of(state),
        address=address_of(base),
        listed=listed,
        regions=found,
        replaced=tuple(each for each, other in zip(known, replaced, strict=True) if other),
    )
    return with_index_history(base, memory, seen)


def contradictions(
    base: BaseTable, manifests: ManifestStore, memory: Memory | None, regions: Collection[RegionId] | None = None
) -> tuple[Contradiction, ...]:
    """Return what a run that began now would freeze the table for; nothing is written.

    Args:
        base: The base table.
        manifests: Its region manifests.
        memory: What is remembered of the table; None if it has no record.
        regions: Only these manifests are read; all by default, and always without a record.
    """
    return first_look(base, manifests) if memory is None else compare(memory, look(base, manifests, memory, regions))


def foreseen(base: BaseTable, manifests: ManifestStore, freezes: FreezeStore) -> tuple[Contradiction, ...]:
    """Return what a run that began now would freeze the table or regions for, beyond what is frozen already.

    Nothing is written or raised: what cannot be read is not compared, and has its own verdicts. Empty if the table is
    frozen, as no run compares it then.
    """
    try:
        # As a run does: what looks wrong is read again before it counts.
        return _unknown_now(base, manifests, freezes, again=False) and _unknown_now(
            base, manifests, freezes, again=True
        )
    except MemwalError as error:
        _log.info("whether a run would freeze the table cannot be told [table=%s]: %s", base.uri, error)
        return ()


def _unknown_now(
    base: BaseTable, manifests: ManifestStore, freezes: FreezeStore, *, again: bool
) -> tuple[Contradiction, ...]:
    record = freezes.load(again=again)
    active = record.active if record is not None else ()
    if any(each.stops_table for each in active):
        return ()
    known = {each.subject for each in active}
    births = region_births(base.store).keys()  # Before the regions are listed, which have theirs from then on.
    found = contradictions(base, manifests, record.memory if record is not None else None)
    missing = births - set(manifests.region_ids()) - {each.region_id for each in found}
    found = (*found, *compare(Memory(), Sighting(missing=missing)))
    return tuple(each for each in found if (each.cause, each.region_id) not in known)


def with_index_history(base: TableReader, memory: Memory, seen: Sighting) -> Sighting:
    """Return a sighting with what the versions since the remembered one tell, if the index has another id than then.

    Commits of Lance give the index a new id, too, so that only the versions in between tell whether it was gone. If the
    remembered version itself was removed, the others suffice where something is merged now: one commit cannot remove
    the index and record progress at once.
    """
    known, now = memory.table, seen.table
    if known is None or now is None or known.index_id is None or now.index_id in (None, known.index_id):
        return seen
    if now.version <= known.version:
        return seen
    # Either number may be anything: versions beyond the newest ones are not looked for, and so prove nothing.
    between = [known.version, *range(max(known.version + 1, now.version - _MOST_VERSIONS), now.version)]
    read = map_concurrently(lambda version: _version(base, version), between, base.settings.storage.concurrency)
    before, *later = read
    return replace(
        seen,
        rewritten=before is not None and before.timestamp != known.timestamp,
        interrupted_at=next((each.version for each in later if each is not None and each.index_id is None), None),
        unproven=None in later
        or (before is None and not any(seen.progress.values()))
        or now.version - known.version > _MOST_VERSIONS,
    )


def is_replaced(manifests: ManifestStore, region_id: RegionId, known: SeenRegion, now: SeenRegion) -> bool:
    """Return whether another manifest has the remembered one's version, or there are only older and newer ones."""
    if now.version <= known.version:
        return False
    try:
        return digest_of(manifests.read(region_id, known.version)) != known.digest
    except ObjectNotFoundError:
        return any(version < known.version for version in manifests.versions(region_id))


def first_look(base: BaseTable, manifests: ManifestStore) -> tuple[Contradiction, ...]:
    """Return what contradicts itself on a table without a memory, by the versions that it still has."""
    try:
        versions = retained_versions(base, base.settings.storage.concurrency, with_tags=False)
        seen = look(base, manifests, Memory())
    except CorruptionError as error:
        _log.warning("the past of the table cannot be read [table=%s]: %s", base.uri, error)
        return ()
    own = [each for each in versions if each.branch is None and each.enabled and not each.legacy]
    if seen.table is None or not own:
        return ()
    absent = {each: merged for each, merged in seen.progress.items() if merged and each not in (seen.listed or ())}
    progress: dict[RegionId, int] = dict(absent)
    for version in own:
        for region_id in version.merged.keys() & seen.regions.keys():
            progress[region_id] = max(version.merged[region_id], progress.get(region_id, 0))
    known = replace(seen.table, index_id=seen.table.index_id or _SOME_INDEX)
    memory = Memory(table=known, progress=progress).learned_absent(absent)
    found = compare(memory, seen)
    told = {each.region_id for each in found}
    return (*found, *(each for each in _late_regions(base, own, seen) if each.region_id not in told))


def _late_regions(base: BaseTable, own: Iterable[RetainedVersion], seen: Sighting) -> Iterator[Contradiction]:
    """Find regions that began after the table had merged generations of theirs, as on a clone."""
    inherited = {each for version in own if version.begins_clone for each, merged in version.merged.items() if merged}
    for region_id, now in seen.regions.items():
        merged = [each for each in own if each.merged.get(region_id, 0) and each.modified is not None]
        first = base.store.head(manifest_path(region_id, FIRST_VERSION)) if merged else None
        earliest = min((each.modified for each in merged if each.modified is not None), default=None)
        is_late = first is not None and earliest is not None and first.modified > earliest + _CLOCKS_DIFFER
        if not is_late and region_id not in inherited:
            continue
        evidence = {
            "region_made": first.modified.isoformat() if first is not None else None,
            "merged_since": earliest.isoformat() if earliest is not None else None,
            "is_clone": region_id in inherited,
            "merged": seen.progress.get(region_id, 0),
            "current_generation": now.current_generation,
            FLUSHED: {str(region_id): now.current_generation - 1},
        }
        yield Contradiction(FreezeCause.REGION_BEGAN_AGAIN, evidence, region_id)


def digest_of(data: bytes) -> str:
    """Return what tells a manifest from another one."""
    return hashlib.sha256(data).hexdigest()[:32]


def seen_table(state: TableState) -> SeenTable:
    """Return what is remembered of a version."""
    return SeenTable(state.version, state.timestamp, state.entry.index_id if state.entry is not None else None)


def sighting_of(state: TableState) -> Sighting:
    """Return what a version alone tells."""
    details = state.details
    return Sighting(
        table=seen_table(state),
        progress=details.merged_generations if details is not None else {},
        published=details is not None and details.snapshot_ts_millis > 0,
    )


def seen_region(manifest: RegionManifest, data: bytes) -> SeenRegion:
    """Return what is remembered of a region's manifest; without its bytes, it has no digest."""
    recorded = {each.generation: each.path for each in manifest.flushed_generations}
    digest = digest_of(data) if data else ""
    return SeenRegion(manifest.version, digest, manifest.current_generation, recorded)


def _read_region(manifests: ManifestStore, region_id: RegionId) -> SeenRegion | None:
    try:
        found = manifests.load_with_bytes(region_id)
    except (CorruptionError, ObjectNotFoundError):
        return None
    return seen_region(*found)


def _version(base: TableReader, version: int) -> SeenTable | None:
    try:
        facts = base.manifests.read(version)
    except ObjectNotFoundError:
        return None
    return SeenTable(version, facts.timestamp, facts.mem_wal.index_id if facts.mem_wal is not None else None)
