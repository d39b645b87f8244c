"""Which region has which region value, and the race-free creation of missing regions.

Region ids are random, so two writers that meet the same new value would make two regions for it, and
one key in two regions corrupts the table. The first writer therefore reserves the value: a
put-if-absent object named by spec and value records the id of the one region that may have it. For
specs of LanceDB's client the id is the one that the client derives from the value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping

from memwal_core.errors import CorruptionError, DamagedError, InvalidRequestError, ObjectExistsError
from memwal_core.format.document import as_text, parse_document
from memwal_core.format.paths import region_birth_path, region_reservation_path
from memwal_core.ids import IdSource, RegionId, parse_region_id
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.region.census import region_births, vanished
from memwal_core.region.client_regions import client_region_id, is_client_region, is_client_spec
from memwal_core.region.spec import RegionSpec, RegionValue, encode_region_value
from memwal_core.region.values import known_value
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.limits import MAX_NOTE_BYTES
from memwal_core.storage.protocol import ObjectStore

_log = logging.getLogger(__name__)


class RegionDirectory:
    """The regions of one spec.

    The status of new regions fixes their WAL codec: SEALED for ``lance``, ACTIVE for ``arrow``.
    """

    def __init__(
        self,
        store: ObjectStore,
        spec: RegionSpec,
        manifests: ManifestStore,
        ids: IdSource,
        concurrency: int,
        status: RegionStatus = RegionStatus.SEALED,
    ) -> None:
        self._store = store
        self._spec = spec
        self._manifests = manifests
        self._ids = ids
        self._concurrency = concurrency
        self._status = status
        self._read: dict[RegionId, tuple[bool, RegionValue | None]] = {}  # Whether of this spec, and its known value.
        self._regions: dict[RegionValue, RegionId] = {}
        self._derived: set[RegionId] = set()

    @property
    def known(self) -> dict[RegionValue, RegionId]:
        """Regions as of the last refresh."""
        return dict(self._regions)

    def has_others(self, values: Collection[RegionValue]) -> bool:
        """Tell whether, as of the last refresh, there are regions that are not known to have one of some values."""
        return bool(self._derived or self._regions.keys() - set(values))

    def refresh(self) -> None:
        """Read the manifests of regions not seen before.

        One that is damaged costs its own value alone: whoever writes that value finds the region by its reservation.

        Raises:
            CorruptionError: Two regions have the same value, or nothing else tells the value of a damaged one.
        """
        listed = self._manifests.region_ids()
        # Once is enough: the spec and the value of a region are set when it is made.
        unread = [each for each in listed if each not in self._read]
        damaged: dict[RegionId, DamagedError] = {}
        for looked in map_concurrently(self._look, unread, self._concurrency):
            if isinstance(looked, RegionManifest):
                is_own = looked.region_spec_id == self._spec.spec_id
                self._read[looked.region_id] = is_own, known_value(self._spec, looked) if is_own else None
            elif looked is not None:
                damaged[looked[0]] = looked[1]
        self._require_reserved(damaged)
        found: dict[RegionValue, RegionId] = {}
        derived = set(damaged)
        for region_id in listed:
            is_own, value = self._read.get(region_id, (False, None))
            if not is_own:
                continue
            if value is None:
                derived.add(region_id)
                continue
            if value in found:
                raise CorruptionError(
                    "two regions have the same region value, so both may contain the same key",
                    remedy="stop all writers of the table, keep both and follow docs/runbooks/duplicate-keys.md",
                    region_value=value,
                    first=str(found[value]),
                    second=str(region_id),
                )
            found[value] = region_id
        self._regions, self._derived = found, derived

    def _look(self, region_id: RegionId) -> RegionManifest | tuple[RegionId, DamagedError] | None:
        try:
            return self._manifests.find(region_id)
        except DamagedError as error:
            return region_id, error

    def _require_reserved(self, damaged: Mapping[RegionId, DamagedError]) -> None:
        """Raise for a damaged region whose value another one could get, because nothing but its manifest tells it."""
        unknown = {each: error for each, error in damaged.items() if not is_client_region(self._spec, each)}
        births = region_births(self._store) if unknown else {}
        for region_id, error in unknown.items():
            if region_id not in births or self._store.head(births[region_id]) is None:
                raise error

    def ensure_all(self, values: Iterable[RegionValue]) -> dict[RegionValue, RegionId]:
        """Return the regions of many values, creating missing ones concurrently."""
        wanted = list(values)
        if any(value not in self._regions for value in wanted):
            self.refresh()
        missing = [value for value in wanted if value not in self._regions]
        self._regions.update(zip(missing, map_concurrently(self._create, missing, self._concurrency), strict=True))
        return {value: self._regions[value] for value in wanted}

    def _create(self, value: RegionValue) -> RegionId:
        derived = client_region_id(self._spec, value)
        if derived is not None and derived in self._derived:
            return derived
        encoded = encode_region_value(self._spec, value)
        path = region_reservation_path(self._spec.spec_id, encoded)
        region_id, is_new = self._reserve(path, derived or self._ids.region_id())
        birth = region_birth_path(path, region_id)
        if not is_new and self._store.head(birth) is not None:
            self._require_present(region_id, birth)
            return region_id
        self._make(region_id, value, encoded)
        # From here on a region without a directory is a loss, and not a creation that was interrupted.
        self._store.put_if_absent(birth, b"{}")
        return region_id

    def _require_present(self, region_id: RegionId, birth: str) -> None:
        """Refuse to make a region anew that was lost: its rows would be missing without an error from then on."""
        if self._manifests.find(region_id) is None:
            raise vanished(region_id, birth)

    def _make(self, region_id: RegionId, value: RegionValue, encoded: dict[str, bytes]) -> None:
        try:
            self._manifests.create(
                region_id,
                region_spec_id=self._spec.spec_id,
                region_field_values=encoded,
                # The client can write a region in turn with us only if it is not sealed.
                status=RegionStatus.ACTIVE if is_client_spec(self._spec) else self._status,
            )
        except ObjectExistsError:
            _log.info("region was created by another writer meanwhile [region_id=%s]", region_id)
        else:
            _log.info("region created [region_id=%s, spec_id=%d, value=%s]", region_id, self._spec.spec_id, value)

    def _reserve(self, path: str, region_id: RegionId) -> tuple[RegionId, bool]:
        """Return the region that has a reservation, and whether it was made now, with this id."""
        try:
            self._store.put_if_absent(path, json.dumps({"region_id": str(region_id)}).encode())
        except ObjectExistsError:
            return self._reserved(path), False
        return region_id, True

    def _reserved(self, path: str) -> RegionId:
        data = self._store.get(path, MAX_NOTE_BYTES)
        try:
            return parse_region_id(as_text(parse_document(data)["region_id"]))
        except (ValueError, KeyError, TypeError, AttributeError, InvalidRequestError) as error:
            raise CorruptionError(
                "the reservation of a region value cannot be read",
                remedy="restore the object from a backup or a versioned bucket; without it two regions could get the "
                "same value",
                path=path,
                found=data[:200],
            ) from error
