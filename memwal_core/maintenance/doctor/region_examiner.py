"""Looking at one region: one listing, its manifests, its generations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from memwal_core.base_table import translated
from memwal_core.errors import CorruptionError, InvalidRequestError, MemwalError, ObjectNotFoundError
from memwal_core.generations import open_generation
from memwal_core.ids import RegionId
from memwal_core.maintenance.doctor.examination import ObservedDirectory, ObservedGeneration, ObservedRegion
from memwal_core.maintenance.doctor.sampling import KeySampler, SampledKeys, shown_value
from memwal_core.manifest import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.region_spec import RegionSpec, decode_region_value
from memwal_core.storage.layout import (
    ARROW_WAL_SUFFIX,
    MANIFEST_SUFFIX,
    WAL_SUFFIXES,
    generation_path,
    parse_numbered_name,
    region_directory,
    wal_entry_path,
)
from memwal_core.storage.protocol import ObjectInfo, ObjectStore

_MANIFEST, _WAL = "manifest", "wal"
_FENCE_KEY = b"fence_sentinel"
_FENCES_READ = 64


@dataclass
class _Listing:
    """What lies below a region's directory."""

    versions: list[int] = field(default_factory=list)
    wal: dict[str, dict[int, datetime]] = field(default_factory=dict)
    directories: dict[str, ObservedDirectory] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    size_bytes: int = 0

    def add(self, relative: str, info: ObjectInfo) -> None:
        self.names.add(relative)
        self.size_bytes += info.size_bytes
        place, _, rest = relative.partition("/")
        if place == _MANIFEST:
            self.versions.extend(_number(rest, MANIFEST_SUFFIX))
        elif place == _WAL:
            for suffix in WAL_SUFFIXES:
                for wal_id in _number(rest, suffix):
                    self.wal.setdefault(suffix, {})[wal_id] = info.modified
        elif rest:
            known = self.directories.get(place)
            newest = max(known.newest, info.modified) if known is not None else info.modified
            size = info.size_bytes + (known.size_bytes if known is not None else 0)
            self.directories[place] = ObservedDirectory(place, size, newest)


class RegionExaminer:
    """Looks at regions of one table. Reads only.

    Args:
        store: The table's store.
        manifests: Its region manifests.
        history: Manifest versions to compare.
    """

    def __init__(self, store: ObjectStore, manifests: ManifestStore, history: int) -> None:
        """Keep the parts; nothing is read."""
        self._store = store
        self._manifests = manifests
        self._history = history

    def manifest(self, region_id: RegionId) -> RegionManifest | MemwalError | None:
        """Return a region's newest manifest, the error if it cannot be read, or None if there is none.

        Read before anything else of the table, so that whatever it records exists when looked for.
        """
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
    ) -> ObservedRegion:
        """Look at a region.

        Args:
            region_id: Which.
            found: What ``manifest`` returned.
            spec: The spec that the manifest names, if the table has it.
            sampler: Draws keys; None = no keys.

        Raises:
            UnavailableError: Storage failed.
        """
        listing = self._list(region_id)
        manifest = found if isinstance(found, RegionManifest) else None
        recorded = manifest.flushed_generations if manifest is not None else ()
        generations = tuple(self._generation(region_id, each, listing) for each in recorded)
        own_value = _own_value(manifest, spec)
        sample = self._sample(region_id, generations, spec if own_value is not None else None, sampler)
        return ObservedRegion(
            region_id=region_id,
            manifest=manifest,
            problem=str(found) if isinstance(found, MemwalError) else None,
            versions=tuple(sorted(listing.versions)),
            history=tuple(self._readable(region_id, sorted(listing.versions)[-self._history :])),
            wal=listing.wal,
            fences=frozenset(self._fences(region_id, manifest, listing.wal.get(ARROW_WAL_SUFFIX, {}))),
            directories=tuple(sorted(listing.directories.values(), key=lambda each: each.name)),
            size_bytes=listing.size_bytes,
            generations=generations,
            keys=sample.keys if sample is not None else None,
            region_values=sample.region_values if sample is not None else None,
            own_value=own_value,
        )

    def _list(self, region_id: RegionId) -> _Listing:
        prefix = region_directory(region_id)
        listing = _Listing()
        for info in self._store.list_objects(prefix):
            listing.add(info.path.removeprefix(f"{prefix}/"), info)
        return listing

    def _readable(self, region_id: RegionId, versions: Iterable[int]) -> Iterable[RegionManifest]:
        for version in versions:
            try:
                yield self._manifests.load_version(region_id, version)
            except (CorruptionError, ObjectNotFoundError):
                continue  # An old version that cannot be read harms nobody; the newest is checked by itself.

    def _generation(self, region_id: RegionId, recorded: FlushedGeneration, listing: _Listing) -> ObservedGeneration:
        if recorded.path not in listing.directories:
            return ObservedGeneration(recorded.generation, recorded.path, exists=False)
        uri = self._store.uri_of(generation_path(region_id, recorded.path))
        try:
            dataset = open_generation(uri, self._store.storage_options)
            with translated("look at a flushed MemTable", uri):
                files = [each for fragment in dataset.get_fragments() for each in fragment.metadata.files]
        except MemwalError as error:
            return ObservedGeneration(recorded.generation, recorded.path, exists=True, problem=str(error))
        # A file with a base lies in the WAL: the generation was flushed without copying rows.
        expected = [
            f"{recorded.path}/data/{each.path}" if each.base_id is None else f"{_WAL}/{each.path}" for each in files
        ]
        missing = tuple(name for name in expected if name not in listing.names)
        return ObservedGeneration(recorded.generation, recorded.path, exists=True, missing_files=missing)

    def _fences(
        self, region_id: RegionId, manifest: RegionManifest | None, entries: Mapping[int, datetime]
    ) -> Iterable[int]:
        """Yield the entries of the tail that hold no rows."""
        replayed = manifest.replay_after_wal_id if manifest is not None else 0
        for wal_id in sorted(wal_id for wal_id in entries if wal_id > replayed)[:_FENCES_READ]:
            path = wal_entry_path(region_id, wal_id, ARROW_WAL_SUFFIX)
            try:
                schema = pa.ipc.open_stream(self._store.get(path)).schema
            except (pa.ArrowInvalid, OSError, ObjectNotFoundError):
                continue  # Whatever it is, it is not known to be without rows.
            if _FENCE_KEY in (schema.metadata or {}):
                yield wal_id

    def _sample(
        self,
        region_id: RegionId,
        generations: Iterable[ObservedGeneration],
        spec: RegionSpec | None,
        sampler: KeySampler | None,
    ) -> SampledKeys | None:
        if sampler is None:
            return None
        sound = [each for each in generations if each.exists and each.problem is None and not each.missing_files]
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
        return None  # Reported by the check of specs.


def _number(name: str, suffix: str) -> list[int]:
    try:
        return [parse_numbered_name(name, suffix)]
    except InvalidRequestError:
        return []
