"""The quarantine: flushed MemTables that failed their audit and wait for a person's decision.

State: one small object per quarantined or released generation below ``_mem_wal/_quality``. The quality checks write
them and people release generations; the merge only reads them. May import ``storage`` and the top-level modules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memwal_core.errors import InvalidRequestError, ObjectExistsError, ObjectNotFoundError
from memwal_core.format.document import as_text, encode_document, parse_document
from memwal_core.format.paths import MAX_UINT64, QUALITY_DIRECTORY, quarantine_path, released_path
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore

_QUARANTINED = f"{QUALITY_DIRECTORY}/quarantined"
_RELEASED = f"{QUALITY_DIRECTORY}/released"
_CONCURRENCY = 8
_GENERATION = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
"""As this project writes them: two names never mean one generation."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """One flushed MemTable that must not be merged.

    Attributes:
        generation: Its number. Later generations of the region wait behind it.
        quarantined_at: When, as ISO 8601 text; empty if the record cannot be read.
    """

    region_id: RegionId
    generation: int
    reasons: tuple[str, ...]
    quarantined_at: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "generation": self.generation,
            "reasons": list(self.reasons),
            "quarantined_at": self.quarantined_at,
        }


class QuarantineStore:
    """The quarantine of one table. A change takes effect with the next plan of a merge."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def load(self) -> tuple[Quarantined, ...]:
        """Return the quarantined generations, ordered by region and generation.

        An unreadable record still counts: in doubt nothing is merged.
        """
        names = _numbered(self._store, _QUARANTINED)
        found = map_concurrently(lambda name: self._read(*name), names, _CONCURRENCY)
        return tuple(entry for entry in found if entry is not None)

    def by_region(self) -> Mapping[RegionId, Mapping[int, Quarantined]]:
        """Return region -> generation -> entry; errors as for ``load``."""
        quarantined: dict[RegionId, dict[int, Quarantined]] = {}
        for entry in self.load():
            quarantined.setdefault(entry.region_id, {})[entry.generation] = entry
        return quarantined

    def released(self) -> frozenset[tuple[RegionId, int]]:
        """Return the generations that people released; they are not quarantined again. Errors as for ``load``."""
        return frozenset(_numbered(self._store, _RELEASED))

    def add(self, entry: Quarantined) -> bool:
        """Quarantine a generation; return False if it already is, or if a person released it."""
        if self._store.head(released_path(entry.region_id, entry.generation)) is not None:
            return False
        try:
            self._store.put_if_absent(quarantine_path(entry.region_id, entry.generation), _encoded(entry.to_dict()))
        except ObjectExistsError:
            return False
        return True

    def release(self, region_id: RegionId, generation: int, now: datetime) -> Quarantined:
        """Release a generation for good: it is merged as it is.

        Args:
            region_id: Its region.
            generation: Its number.
            now: Recorded with the release.

        Returns:
            The entry that ended.

        Raises:
            InvalidRequestError: It is not in quarantine.
        """
        entry = self._read(region_id, generation)
        if entry is None:
            raise InvalidRequestError(
                "this generation is not in quarantine",
                remedy="name a generation that `memwal checks` lists",
                region_id=str(region_id),
                generation=generation,
            )
        record = {**entry.to_dict(), "released_at": now.isoformat()}
        # The release comes first: between the two writes the generation is both, and so still in quarantine.
        self._store.put(released_path(region_id, generation), _encoded(record))
        self._store.delete(quarantine_path(region_id, generation))
        return entry

    def forget(self, region_id: RegionId) -> None:
        """Delete what is recorded of a region that a person gave up: a new one of its id numbers from 1 again."""
        for directory in (_QUARANTINED, _RELEASED):
            self._store.delete_directory(f"{directory}/{region_id}")

    def _read(self, region_id: RegionId, generation: int) -> Quarantined | None:
        try:
            data = self._store.get(quarantine_path(region_id, generation), MAX_NOTE_BYTES)
        except ObjectNotFoundError:
            return None
        return _decoded(region_id, generation, data)


def _decoded(region_id: RegionId, generation: int, data: bytes) -> Quarantined:
    try:
        document = parse_document(data)
        reasons = tuple(as_text(reason) for reason in document["reasons"])
        return Quarantined(region_id, generation, reasons, as_text(document["quarantined_at"]))
    except (ValueError, TypeError, KeyError):
        return Quarantined(region_id, generation, ("the quarantine record cannot be read",), "")


def _encoded(document: Mapping[str, object]) -> bytes:
    return encode_document(document, indent=2)


def _numbered(store: ObjectStore, directory: str) -> list[tuple[RegionId, int]]:
    """Return the (region, generation) pairs that the names below a directory stand for, sorted."""
    found = []
    for info in store.list_objects(directory):
        region, _, name = info.path.removeprefix(f"{directory}/").partition("/")
        number = name.removesuffix(".json")
        if name != number and _GENERATION.fullmatch(number) and int(number) <= MAX_UINT64:
            try:
                found.append((parse_region_id(region), int(number)))
            except InvalidRequestError:
                continue  # A stray object; this project never writes such names.
    return sorted(found)
