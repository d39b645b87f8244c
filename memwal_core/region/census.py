"""Which regions a table has, those included that cannot be read or have vanished.

A directory listing shows what is there. What must be there is said by the marks that writers leave when they create a
region, by the maintenance record, and by the table version: its merge progress and its region snapshot. A region that
must exist and cannot be read is damaged, and never left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from memwal_core.errors import CorruptionError, DamagedError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.paths import (
    RESERVATIONS_DIRECTORY,
    manifest_directory,
    parse_region_birth,
    region_birth_path,
    region_directory,
    writer_release_path,
)
from memwal_core.format.region_manifest.model import RegionManifest
from memwal_core.ids import RegionId
from memwal_core.region.store import ManifestStore
from memwal_core.storage.concurrent import at_most, map_concurrently, run_two
from memwal_core.storage.protocol import ObjectStore

BRING_BACK = (
    "put the region's directory back; if it is gone for good, or stayed behind when Lance cloned the table, run "
    "`memwal merge`, which parks the region, and `memwal thaw --choice accept` to give it up"
)
"""What to do about a region that is gone."""

_OLDER_VERSIONS = 5

MANY_REGIONS = 8
"""From here on, one more look at the table and a listing cost less than reading the regions that have not changed."""

KnownOf = Callable[[int], Mapping[RegionId, RegionManifest]]
"""Returns, for a number of regions, the manifests that need not be read, see ``unchanged_since``."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DamagedRegion:
    """A region that must exist and cannot be read.

    Attributes:
        identity: An older version of its manifest, or its row of a region snapshot: spec, region value and status hold
            for ever, the rest is out of date. None if there is neither.
        reservation: The path at which its region value is reserved; None if it is unknown.
    """

    region_id: RegionId
    error: DamagedError
    identity: RegionManifest | None = None
    reservation: str | None = None

    @property
    def is_gone(self) -> bool:
        """Whether nothing is left of it."""
        return self.error.facts["path"] == region_directory(self.region_id)

    @property
    def evidence(self) -> str:
        """The file and what is wrong with it."""
        return f"{self.error.facts['path']}: {self.error.facts['cause']}"


@dataclass(frozen=True, slots=True)
class Census:
    """The regions of a table.

    Attributes:
        manifests: Those that can be read, ordered by id.
        damaged: The others.
        ruled_out: Regions that were not looked at, because nothing of them was needed.
        unread: Those of ``manifests`` that were known and not read.
    """

    manifests: tuple[RegionManifest, ...]
    damaged: Mapping[RegionId, DamagedRegion] = field(default_factory=lambda: MappingProxyType({}))
    ruled_out: frozenset[RegionId] = frozenset()
    unread: frozenset[RegionId] = frozenset()

    @property
    def region_ids(self) -> frozenset[RegionId]:
        """All regions."""
        return frozenset(each.region_id for each in self.manifests) | self.damaged.keys() | self.ruled_out

    def with_known(
        self, taker: CensusTaker, merged: Iterable[RegionId], snapshot: Iterable[RegionManifest] = ()
    ) -> Census:
        """Add the regions that a table version names and the listing did not show.

        Args:
            taker: Reads them again: they may have been created after the listing.
            merged: Regions with merge progress.
            snapshot: The region snapshot.
        """
        rows = {each.region_id: each for each in snapshot}
        named = dict.fromkeys(rows, "the region snapshot")
        named |= dict.fromkeys(merged, "the merge progress of the table")
        missing = sorted(named.keys() - self.region_ids)
        identified = {
            region_id: replace(each, identity=each.identity or rows.get(region_id))
            for region_id, each in self.damaged.items()
        }
        if not missing and not identified:
            return self
        late = taker.read(missing)
        gone = {
            region_id: DamagedRegion(region_id, vanished(region_id, named[region_id]), rows.get(region_id))
            for region_id in missing
            if region_id not in late.region_ids
        }
        manifests = sorted([*self.manifests, *late.manifests], key=lambda each: each.region_id)
        return Census(tuple(manifests), {**identified, **late.damaged, **gone}, self.ruled_out, self.unread)

    def require_all(self) -> tuple[RegionManifest, ...]:
        """Return all manifests; ``DamagedError`` if a region is damaged."""
        for each in self.damaged.values():
            raise each.error
        return self.manifests


class NeededRegions(Protocol):
    """Which regions a read needs, by the paths at which region values are reserved."""

    @property
    def expected(self) -> Collection[str]:
        """The reservations of values that are known to be needed."""
        ...

    def may_hold(self, reservation: str) -> bool:
        """Tell whether the region of a reservation may be needed."""
        ...


class CensusTaker:
    """Takes the census of one table; ``elsewhere`` reads the manifests of many regions in place of ``read``."""

    def __init__(
        self,
        store: ObjectStore,
        manifests: ManifestStore,
        concurrency: int,
        elsewhere: Callable[[Sequence[RegionId]], Census] | None = None,
    ) -> None:
        self._store = store
        self._manifests = manifests
        self._concurrency = concurrency
        self._elsewhere = elsewhere
        self._marks: tuple[Mapping[RegionId, str], frozenset[RegionId]] = ({}, frozenset())

    def take(
        self,
        remembered: Collection[RegionId] = (),
        known_of: KnownOf | None = None,
    ) -> Census:
        """Read the manifests of all regions that are listed, and name those that are missing.

        Args:
            remembered: Regions that the maintenance record names, beside those that the manifests remember.
            known_of: Called after the listing; all manifests are read if None.
        """
        births, listed = run_two(self._store.kind, lambda: region_births(self._store), self._manifests.region_ids)
        if not births.keys() <= set(listed):
            listed = self._manifests.region_ids()  # Created meanwhile, before its mark; or gone.
            self._manifests.notify_missing(births.keys() - set(listed))
        remembered = (*remembered, *self._manifests.remembered())
        known = known_of(len(listed)) if known_of is not None else {}
        return self._taken(births, listed, remembered, known=known)

    def take_needed(self, needs: NeededRegions, remembered: Collection[RegionId] = ()) -> Census:
        """Take the census of the regions that a read may need, and leave the others out.

        The marks of creation say for ever which region has which value; they are listed again only where a region
        has appeared since, or a needed one is not there. Regions without a mark are always read.
        """
        remembered = (*remembered, *self._manifests.remembered())
        births, seen = self._marks
        listed = self._manifests.region_ids() if births else []
        expected = {region_id for region_id, path in births.items() if path in needs.expected}
        is_known = len(expected) == len(needs.expected) and expected <= set(listed) <= seen
        if not births or not is_known:
            births = region_births(self._store)
            listed = self._manifests.region_ids()
            self._marks = (births, frozenset(listed))
        ruled_out = frozenset(region_id for region_id, path in births.items() if not needs.may_hold(path))
        return self._taken(births, [each for each in listed if each not in ruled_out], remembered, ruled_out)

    def _taken(
        self,
        births: Mapping[RegionId, str],
        listed: Sequence[RegionId],
        remembered: Collection[RegionId],
        ruled_out: frozenset[RegionId] = frozenset(),
        known: Mapping[RegionId, RegionManifest] = MappingProxyType({}),
    ) -> Census:
        unread = [each for each in listed if each not in known]
        census = self._elsewhere(unread) if self._elsewhere is not None else self.read(unread)
        unchanged = [known[each] for each in listed if each in known]
        manifests = sorted([*census.manifests, *unchanged], key=lambda each: each.region_id)
        census = replace(census, manifests=tuple(manifests))
        witnesses = dict.fromkeys(remembered, "the maintenance record")
        witnesses |= {region_id: f"the mark of its creation beside {path}" for region_id, path in births.items()}
        gone = {
            region_id: DamagedRegion(region_id, vanished(region_id, witness), reservation=births.get(region_id))
            for region_id, witness in witnesses.items()
            if region_id not in census.region_ids | ruled_out
        }
        damaged = {
            region_id: replace(each, reservation=births.get(region_id)) for region_id, each in census.damaged.items()
        }
        at_rest = frozenset(each.region_id for each in unchanged)
        return Census(census.manifests, {**damaged, **gone}, ruled_out, at_rest)

    def read(self, region_ids: Iterable[RegionId]) -> Census:
        """Read the manifests of some regions.

        A region without manifest and without data is left out: its creation is under way or was interrupted, so no
        writer can have written to it.
        """
        regions = list(region_ids)
        found = map_concurrently(self._look, regions, at_most(self._store.kind, len(regions), self._concurrency))
        damaged = {each.region_id: each for each in found if isinstance(each, DamagedRegion)}
        return Census(tuple(each for each in found if isinstance(each, RegionManifest)), damaged)

    def forget(self, region_ids: Collection[RegionId]) -> None:
        """Delete what lies beside regions that a person gave up, of which a writer may make new ones by the same ids.

        The mark of their creation, and which epochs were released: those of the new region count from 1 again.
        """
        for region_id, reservation in region_births(self._store).items():
            if region_id in region_ids:
                self._store.delete(region_birth_path(reservation, region_id))
        for region_id in region_ids:
            self._store.delete(writer_release_path(region_id))

    def _look(self, region_id: RegionId) -> RegionManifest | DamagedRegion | None:
        try:
            manifest = self._manifests.find(region_id)
        except DamagedError as error:
            _log.warning("region is damaged [region_id=%s, path=%s]", region_id, error.facts.get("path"))
            return DamagedRegion(region_id, error, self._identity(region_id))
        if manifest is not None:
            return manifest
        own = manifest_directory(region_id)
        data = [info.path for info in self._store.list_objects(region_directory(region_id))]
        data = [path for path in data if not path.startswith(f"{own}/")]
        if not data:
            return None
        cause = f"no manifest is left, and the region holds {len(data)} objects, for example {data[0]}"
        return DamagedRegion(region_id, DamagedError.of(region_id, own, cause))

    def _identity(self, region_id: RegionId) -> RegionManifest | None:
        """Return an older manifest version that can be read."""
        try:
            versions = self._manifests.versions(region_id)
        except CorruptionError:
            return None  # Its directory is not one of the table.
        for version in reversed(versions[-_OLDER_VERSIONS - 1 :]):
            try:
                return self._manifests.load_version(region_id, version)
            except (CorruptionError, ObjectNotFoundError):
                continue
        return None


def region_births(store: ObjectStore) -> dict[RegionId, str]:
    """Return the regions that the marks of their creation name, each with the path at which its value is reserved."""
    found = {}
    for info in store.list_objects(RESERVATIONS_DIRECTORY):
        try:
            region_id, reservation = parse_region_birth(info.path)
        except InvalidRequestError:
            continue  # A reservation.
        found[region_id] = reservation
    return found


def vanished(region_id: RegionId, witness: str) -> DamagedError:
    """Return the error of a region whose directory is gone although something names it."""
    return DamagedError(
        "a file of a region is missing or damaged",
        remedy=f"{BRING_BACK}; `memwal repair` names every such region",
        region_id=str(region_id),
        path=region_directory(region_id),
        cause=f"the region's directory is gone; {witness} names it",
    )
