"""Examine one region: its manifests, its listing, its generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from memwal_core.errors import (
    CorruptionError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.paths import (
    LANCE_WAL_SUFFIX,
    MANIFEST_SUFFIX,
    WAL_SUFFIXES,
    generation_path,
    manifest_directory,
    parse_numbered_name,
    region_directory,
)
from memwal_core.ids import RegionId
from memwal_core.jobs.readability.files import RegionProof
from memwal_core.observe.doctor.examination import ExaminedRegion, ObservedDirectory, ObservedGeneration
from memwal_core.observe.doctor.sampling import KeySampler, SampledKeys, shown_value
from memwal_core.observe.status import WalTail, find_wal_tail
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.region.spec import RegionSpec, decode_region_value
from memwal_core.storage.protocol import ObjectInfo, ObjectStore

_MANIFEST, _WAL = "manifest", "wal"
_SHALLOW_HISTORY = 2
_SHALLOW_ENTRIES = 1000
"""WAL entries listed of a region without a manifest: one page tells whether it holds rows."""


@dataclass(frozen=True, slots=True)
class RestingRegion:
    """A region that is as the region snapshot says, and what a listing of the whole table shows of it."""

    manifest: RegionManifest
    objects: Iterable[ObjectInfo]


@dataclass
class _Listing:
    """What lies below a region's directory."""

    manifests: dict[int, datetime] = field(default_factory=dict)
    wal: dict[str, set[int]] = field(default_factory=dict)
    directories: dict[str, ObservedDirectory] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    size_bytes: int = 0

    def add(self, relative: str, info: ObjectInfo) -> None:
        self.names.add(relative)
        self.size_bytes += info.size_bytes
        place, _, rest = relative.partition("/")
        if place == _MANIFEST:
            self.manifests |= dict.fromkeys(_number(rest, MANIFEST_SUFFIX), info.modified)
        elif place == _WAL:
            for suffix in WAL_SUFFIXES:
                for wal_id in _number(rest, suffix):
                    self.wal.setdefault(suffix, set()).add(wal_id)
        elif rest:
            known = self.directories.get(place)
            newest = max(known.newest or info.modified, info.modified) if known is not None else info.modified
            size = info.size_bytes + (known.size_bytes if known is not None else 0)
            self.directories[place] = ObservedDirectory(place, size, newest)


class RegionExaminer:
    """Examines regions of one table. Reads only.

    Args:
        deep: Whether to list every object and open every flushed MemTable; otherwise a few requests per region do.
        resting: Regions that a look that is not deep need not read.
    """

    def __init__(
        self,
        store: ObjectStore,
        manifests: ManifestStore,
        history: int,
        *,
        deep: bool,
        resting: Mapping[RegionId, RestingRegion] = MappingProxyType({}),
    ) -> None:
        """Keep the parts; nothing is read."""
        self._resting = resting
        self._store = store
        self._manifests = manifests
        self._history = history if deep else _SHALLOW_HISTORY
        self._deep = deep

    def manifest(self, region_id: RegionId) -> RegionManifest | MemwalError | None:
        """Return a region's newest manifest, the error if it cannot be read, or None if there is none.

        It is read before anything else of the table, so that whatever it records exists by the time it is
        looked up.
        """
        if region_id in self._resting:
            return self._resting[region_id].manifest
        try:
            return self._manifests.load(region_id)
        except ObjectNotFoundError:
            return None
        except CorruptionError as error:
            return error

    def examine(
        self,
        region_id: RegionId,
        found: RegionManifest | MemwalError | None,
        spec: RegionSpec | None,
        sampler: KeySampler | None,
        proof: RegionProof,
        merged: int,
    ) -> ExaminedRegion:
        """Examine a region whose manifest was read before.

        ``found`` is what ``manifest`` returned, ``spec`` the one that the manifest names if the table has it;
        without a sampler no keys are drawn. ``proof`` opens flushed MemTables and WAL entries;
        ``merged`` is the merge progress.
        """
        manifest = found if isinstance(found, RegionManifest) else None
        tail = self._tail(manifest) if manifest is not None else None
        listing = self._list(region_id, tail)
        recorded = manifest.flushed_generations if manifest is not None else ()
        generations = tuple(
            self._generation(region_id, each, listing, proof, is_merged=each.generation <= merged) for each in recorded
        )
        own_value = _own_value(manifest, spec)
        drawn_after = merged if sampler is not None and sampler.only_waiting else 0
        drawn = [each for each in generations if each.generation > drawn_after]
        sample = self._sample(region_id, drawn, spec if own_value is not None else None, sampler)
        return ExaminedRegion(
            region_id=region_id,
            manifest=manifest,
            problem=str(found) if isinstance(found, MemwalError) else None,
            manifests=listing.manifests,
            history=tuple(self._readable(region_id, sorted(listing.manifests)[-self._history :], manifest)),
            wal=listing.wal,
            directories=tuple(sorted(listing.directories.values(), key=lambda each: each.name)),
            size_bytes=listing.size_bytes,
            generations=generations,
            keys=sample.keys if sample is not None else None,
            region_values=sample.region_values if sample is not None else None,
            own_value=own_value,
            tail=tail,
            damaged_entries=self._damaged_entries(region_id, manifest, listing, proof),
        )

    def _tail(self, manifest: RegionManifest) -> WalTail:
        if manifest.region_id in self._resting:
            return WalTail(manifest.known_wal_id, is_lower_bound=False, suffix=LANCE_WAL_SUFFIX)
        return find_wal_tail(self._store, manifest)

    def _damaged_entries(
        self, region_id: RegionId, manifest: RegionManifest | None, listing: _Listing, proof: RegionProof
    ) -> dict[int, str]:
        """Look at the WAL entries that no flush has taken: nothing else has their rows."""
        if manifest is None or not self._deep or len(listing.wal) != 1:
            return {}  # Of two codecs, another check tells.
        [(suffix, entries)] = listing.wal.items()
        unflushed = sorted(each for each in entries if each > manifest.replay_after_wal_id)
        return proof.damaged_entries(region_id, suffix, unflushed)

    def _list(self, region_id: RegionId, tail: WalTail | None) -> _Listing:
        prefix = region_directory(region_id)
        listing, resting = _Listing(), self._resting.get(region_id)
        objects = (
            resting.objects
            if resting is not None
            else self._store.list_objects(prefix if self._deep else manifest_directory(region_id))
        )
        for info in objects:
            listing.add(info.path.removeprefix(f"{prefix}/"), info)
        if not self._deep:
            shown = listing.directories if resting is not None else self._store.list_directories(prefix)
            names = set(shown) - {_MANIFEST, _WAL}
            listing.directories = {name: ObservedDirectory(name) for name in names}
            if tail is None:
                for info in islice(self._store.list_objects(f"{prefix}/{_WAL}"), _SHALLOW_ENTRIES):
                    listing.add(info.path.removeprefix(f"{prefix}/"), info)
            elif tail.suffix is not None:
                listing.wal = {tail.suffix: {tail.wal_id}}
        return listing

    def _readable(
        self, region_id: RegionId, versions: Iterable[int], known: RegionManifest | None
    ) -> Iterable[RegionManifest]:
        for version in versions:
            if known is not None and version == known.version:
                yield known
                continue
            if region_id in self._resting:
                continue
            try:
                yield self._manifests.load_version(region_id, version)
            except (CorruptionError, ObjectNotFoundError):
                continue  # An unreadable old version does no harm; the newest has its own check.

    def _generation(
        self,
        region_id: RegionId,
        recorded: FlushedGeneration,
        listing: _Listing,
        proof: RegionProof,
        *,
        is_merged: bool,
    ) -> ObservedGeneration:
        if recorded.path not in listing.directories:
            return ObservedGeneration(recorded.generation, recorded.path, exists=False)
        if not self._deep:
            return ObservedGeneration(recorded.generation, recorded.path, exists=True)
        try:
            found = proof.examine(region_id, recorded)
        except (UnavailableError, StoreRefusedError):
            raise  # It says nothing about the files.
        except MemwalError as error:
            return ObservedGeneration(recorded.generation, recorded.path, exists=True, problem=str(error))
        unmergeable = "" if is_merged else found.unmergeable
        return ObservedGeneration(
            recorded.generation,
            recorded.path,
            exists=True,
            damage=found.damage,
            unmergeable=unmergeable,
            recorded_address=found.recorded_address,
        )

    def _sample(
        self,
        region_id: RegionId,
        generations: Iterable[ObservedGeneration],
        spec: RegionSpec | None,
        sampler: KeySampler | None,
    ) -> SampledKeys | None:
        if sampler is None:
            return None
        sound = [each for each in generations if each.exists and each.problem is None and not each.damage]
        newest_first = sorted(sound, key=lambda each: each.generation, reverse=True)
        uris = [self._store.uri_of(generation_path(region_id, each.path)) for each in newest_first]
        return sampler.draw(uris, spec)


def _own_value(manifest: RegionManifest | None, spec: RegionSpec | None) -> str | None:
    """Return a region's value as text; None if it has none, like regions that Lance's writer makes."""
    if manifest is None or spec is None or not manifest.region_field_values:
        return None
    try:
        return shown_value(decode_region_value(spec, manifest.region_field_values))
    except (CorruptionError, InvalidRequestError):
        return None  # The check of specs reports it.


def _number(name: str, suffix: str) -> list[int]:
    try:
        return [parse_numbered_name(name, suffix)]
    except InvalidRequestError:
        return []
