"""Flushed MemTables that failed their audit and wait for a person: which, why, and who let them go.

State: one small object per held or released generation below ``_mem_wal/_quality``. The quality
checks write holds and people release them; the merge only reads them. May import ``storage`` and
the top-level modules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memwal_core.errors import InvalidRequestError, ObjectExistsError, ObjectNotFoundError
from memwal_core.ids import RegionId, parse_region_id
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import QUALITY_DIRECTORY, held_path, released_path
from memwal_core.storage.protocol import ObjectStore

_HELD = f"{QUALITY_DIRECTORY}/held"
_RELEASED = f"{QUALITY_DIRECTORY}/released"
_CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class Hold:
    """One flushed MemTable that must not be merged.

    Attributes:
        region_id: Its region.
        generation: Its number. Later generations of the region wait behind it.
        reasons: The checks that it failed, with their evidence.
        held_at: When, as ISO 8601 text; empty if the record cannot be read.
    """

    region_id: RegionId
    generation: int
    reasons: tuple[str, ...]
    held_at: str

    def to_dict(self) -> dict[str, object]:
        """Return JSON-able values."""
        return {
            "region_id": str(self.region_id),
            "generation": self.generation,
            "reasons": list(self.reasons),
            "held_at": self.held_at,
        }


class HoldStore:
    """The holds of one table. A hold takes effect with the next plan of a merge.

    Args:
        store: Objects below the table's root.
    """

    def __init__(self, store: ObjectStore) -> None:
        """Keep the store; nothing is read."""
        self._store = store

    def load(self) -> tuple[Hold, ...]:
        """Return all holds, ordered by region and generation.

        A record that cannot be read still holds: on doubt nothing is merged.

        Raises:
            UnavailableError: Storage failed.
        """
        names = _numbered(self._store, _HELD)
        found = map_concurrently(lambda name: self._read(*name), names, _CONCURRENCY)
        return tuple(hold for hold in found if hold is not None)

    def by_region(self) -> Mapping[RegionId, Mapping[int, Hold]]:
        """Return region -> generation -> hold.

        Raises:
            UnavailableError: Storage failed.
        """
        held: dict[RegionId, dict[int, Hold]] = {}
        for hold in self.load():
            held.setdefault(hold.region_id, {})[hold.generation] = hold
        return held

    def released(self) -> frozenset[tuple[RegionId, int]]:
        """Return the generations that people let pass; they are not held again.

        Raises:
            UnavailableError: Storage failed.
        """
        return frozenset(_numbered(self._store, _RELEASED))

    def hold(self, hold: Hold) -> bool:
        """Keep a generation from being merged.

        Returns:
            False if it was held already or a person has let it pass.

        Raises:
            UnavailableError: Storage failed. Try again.
        """
        if self._store.head(released_path(hold.region_id, hold.generation)) is not None:
            return False
        try:
            self._store.put_if_absent(held_path(hold.region_id, hold.generation), _encoded(hold.to_dict()))
        except ObjectExistsError:
            return False
        return True

    def release(self, region_id: RegionId, generation: int, now: datetime) -> Hold:
        """Let a held generation pass, for good: it is merged as it is.

        Args:
            region_id: Its region.
            generation: Its number.
            now: Recorded with the release.

        Returns:
            The hold that ended.

        Raises:
            InvalidRequestError: It is not held.
            UnavailableError: Storage failed. Try again.
        """
        hold = self._read(region_id, generation)
        if hold is None:
            raise InvalidRequestError(
                "this generation is not held",
                remedy="`memwal quality` lists what is held",
                region_id=str(region_id),
                generation=generation,
            )
        record = {**hold.to_dict(), "released_at": now.isoformat()}
        # The release comes first: between the two writes the generation is both, which still holds.
        self._store.put(released_path(region_id, generation), _encoded(record))
        self._store.delete(held_path(region_id, generation))
        return hold

    def _read(self, region_id: RegionId, generation: int) -> Hold | None:
        try:
            data = self._store.get(held_path(region_id, generation))
        except ObjectNotFoundError:
            return None
        return _decoded(region_id, generation, data)


def _decoded(region_id: RegionId, generation: int, data: bytes) -> Hold:
    try:
        document = json.loads(data)
        reasons = tuple(str(reason) for reason in document["reasons"])
        return Hold(region_id, generation, reasons, str(document["held_at"]))
    except (ValueError, TypeError, KeyError):
        return Hold(region_id, generation, ("the record of the hold cannot be read",), "")


def _encoded(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent=2).encode()


def _numbered(store: ObjectStore, directory: str) -> list[tuple[RegionId, int]]:
    """Return the (region, generation) that the names below a directory stand for, sorted."""
    found = []
    for info in store.list_objects(directory):
        region, _, name = info.path.removeprefix(f"{directory}/").partition("/")
        number = name.removesuffix(".json")
        if name != number and number.isascii() and number.isdigit():
            try:
                found.append((parse_region_id(region), int(number)))
            except InvalidRequestError:
                continue  # A stray object; nobody here writes such names.
    return sorted(found)
