"""Sort the objects of a region directory by the form of their names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from memwal_core.errors import InvalidRequestError
from memwal_core.format.paths import (
    MANIFEST_SUFFIX,
    VERSION_HINT_NAME,
    WAL_SUFFIXES,
    number_of,
    parse_generation_directory,
    region_directory,
)
from memwal_core.ids import RegionId
from memwal_core.jobs.gc.state import DirectoryState, GcRegionState, NumberedObject
from memwal_core.region import RegionManifest
from memwal_core.storage.protocol import ObjectInfo

_TEMPORARY = re.compile(r"(?P<final>.+)\.tmp\.[0-9A-Za-z]+", re.ASCII)
_NUMBERED = {"manifest": (MANIFEST_SUFFIX,), "wal": WAL_SUFFIXES}
_IN_DIRECTORY = 2


@dataclass
class RegionContents:
    """The objects of one region directory.

    Attributes:
        directories: Name -> directory of a flushed MemTable, by its form or because it is recorded.
        unknown: Everything else, except version hints.
    """

    versions: list[NumberedObject] = field(default_factory=list)
    wal: list[NumberedObject] = field(default_factory=list)
    wal_suffixes: set[str] = field(default_factory=set)
    directories: dict[str, DirectoryState] = field(default_factory=dict)
    temporaries: list[ObjectInfo] = field(default_factory=list)
    unknown: list[ObjectInfo] = field(default_factory=list)

    def state(self, region_id: RegionId, manifest: RegionManifest | None) -> GcRegionState:
        """Return what the objects alone tell of a region with this manifest."""
        return GcRegionState(
            region_id=region_id,
            manifest=manifest,
            versions=tuple(self.versions),
            directories=tuple(sorted(self.directories.values(), key=lambda each: (each.generation, each.name))),
            wal=tuple(self.wal),
            wal_suffixes=frozenset(self.wal_suffixes),
            temporaries=tuple(self.temporaries),
            unknown=tuple(self.unknown),
        )

    def add(self, info: ObjectInfo, parts: list[str], recorded: Collection[str]) -> None:
        """Add one object, whose path below the region directory is ``parts``."""
        place = parts[0]
        if place in _NUMBERED and len(parts) == _IN_DIRECTORY:
            self._add_numbered(info, place, parts[1])
        elif len(parts) >= _IN_DIRECTORY and (generation_of(place) or place in recorded):
            self._add_to_directory(info, place)
        else:
            self.unknown.append(info)

    def _add_numbered(self, info: ObjectInfo, place: str, name: str) -> None:
        if place == "manifest" and name == VERSION_HINT_NAME:
            return
        temporary = _TEMPORARY.fullmatch(name)
        for suffix in _NUMBERED[place]:
            number = number_of(temporary["final"] if temporary else name, suffix)
            if number is None:
                continue
            if temporary:
                self.temporaries.append(info)
            elif place == "manifest":
                self.versions.append(NumberedObject(number, info))
            else:
                self.wal.append(NumberedObject(number, info))
                self.wal_suffixes.add(suffix)
            return
        self.unknown.append(info)

    def _add_to_directory(self, info: ObjectInfo, name: str) -> None:
        known = self.directories.get(name)
        if known is None:
            known = DirectoryState(name, generation_of(name), 0, 0, info.modified)
        self.directories[name] = replace(
            known,
            objects=known.objects + 1,
            size_bytes=known.size_bytes + info.size_bytes,
            modified=max(known.modified, info.modified),
        )


def region_contents(region_id: RegionId, objects: Iterable[ObjectInfo], recorded: Collection[str]) -> RegionContents:
    """Sort all objects below a region directory; ``recorded`` has the directories in its manifest, of any form."""
    contents = RegionContents()
    prefix = f"{region_directory(region_id)}/"
    for info in objects:
        contents.add(info, info.path.removeprefix(prefix).split("/"), recorded)
    contents.versions.sort(key=lambda each: each.number)
    contents.wal.sort(key=lambda each: each.number)
    return contents


def generation_of(name: str) -> int:
    """Return the generation in a directory's name; 0 if the name does not have the form of a flushed MemTable's."""
    try:
        return parse_generation_directory(name)
    except InvalidRequestError:
        return 0
