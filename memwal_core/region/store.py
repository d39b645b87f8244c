"""The versions of region manifests in a table: create, load, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    DamagedError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.malformed import apparent_damage
from memwal_core.format.paths import (
    MANIFEST_SUFFIX,
    MEM_WAL_DIRECTORY,
    RESERVED_NAMES,
    manifest_directory,
    manifest_path,
)
from memwal_core.format.region_manifest.codec import decode_manifest, encode_manifest
from memwal_core.format.region_manifest.model import RegionManifest, RegionStatus
from memwal_core.ids import IdSource, RegionId
from memwal_core.region.invariants import Violation, manifest_violations, transition_violations
from memwal_core.region.listing import region_of
from memwal_core.register import FIRST_VERSION, Entry, VersionedRegister
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import StorageSettings
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore

Change = Callable[[RegionManifest], RegionManifest | None]
_Check = Callable[[RegionManifest], None]

_REGION_ID_VERSIONS = (4, 5)
_UPDATE_ATTEMPTS = 20
_SETTLE_ATTEMPTS = 3

_log = logging.getLogger(__name__)


class ManifestObserver(Protocol):
    """Is told what was read, before whoever reads it; what it raises ends the read."""

    def on_manifest(self, manifest: RegionManifest, data: bytes) -> None:
        """Hear of the newest version of a region's manifest."""
        ...

    def on_regions(self, listed: Collection[RegionId]) -> None:
        """Hear which regions have a directory."""
        ...

    def on_missing(self, regions: Collection[RegionId]) -> None:
        """Hear which regions were created and have none."""
        ...


class ManifestStore:
    """All region manifests of one table. Safe to share between threads.

    Every attempt writes a fresh commit id from ``ids``, so that two processes that make the same change
    differ in bytes and only one of them can believe it won.
    """

    def __init__(
        self,
        store: ObjectStore,
        ids: IdSource,
        *,
        settings: StorageSettings | None = None,
        clock: Clock | None = None,
        rng: Rng | None = None,
    ) -> None:
        self._store = store
        self._ids = ids
        self._settings = settings if settings is not None else StorageSettings()
        self._clock = clock if clock is not None else SystemClock()
        self._rng = rng if rng is not None else system_rng()
        self._observer: ManifestObserver | None = None
        self._remembered: Callable[[], Collection[RegionId]] = tuple

    def remembering(self, regions: Callable[[], Collection[RegionId]]) -> ManifestStore:
        """Return the same manifests; ``regions`` tells which regions were seen before, and so must exist."""
        manifests = copy(self)
        manifests._remembered = regions  # noqa: SLF001 - a copy of its own kind
        return manifests

    def remembered(self) -> Collection[RegionId]:
        """Return the regions that were seen before; those that are gone had rows."""
        return self._remembered()

    def observed(self, observer: ManifestObserver) -> ManifestStore:
        """Return the same manifests; the observer is told whatever is read through them first."""
        manifests = copy(self)
        manifests._observer = observer  # noqa: SLF001 - a copy of its own kind
        return manifests

    def create(
        self,
        region_id: RegionId,
        *,
        region_spec_id: int = 0,
        region_field_values: Mapping[str, bytes] = MappingProxyType({}),
        status: RegionStatus = RegionStatus.ACTIVE,
    ) -> RegionManifest:
        """Create a region and return its version 1.

        ``region_id`` is a new UUID version 4, or 5 for a region as LanceDB's client names it. ``status`` is SEALED for
        regions of the ``lance`` codec
        (decision 0002).

        Raises:
            ObjectExistsError: The region exists.
            CommitUnknownError: It is unknown whether the region was created. Load it.
        """
        if region_id.version not in _REGION_ID_VERSIONS:
            raise InvalidRequestError(
                "a region id must be a UUID version 4, or 5 as LanceDB's client names regions",
                remedy="make one with IdSource.region_id()",
                region_id=str(region_id),
                found_version=region_id.version,
            )
        register = self._register(region_id)
        if register.hinted_version() or register.versions():
            raise ObjectExistsError("the region already exists", remedy="load it", region_id=str(region_id))
        first = RegionManifest(
            region_id=region_id,
            version=FIRST_VERSION,
            region_spec_id=region_spec_id,
            region_field_values=MappingProxyType(dict(region_field_values)),
            status=status,
            commit_id=self._ids.commit_id(),
        )
        return self._write(first)

    def load(self, region_id: RegionId) -> RegionManifest:
        """Read the newest version of a region's manifest.

        Raises:
            ObjectNotFoundError: The region does not exist.
            CorruptionError: The newest version is damaged or breaks a rule. Change nothing.
        """
        manifest, data = self.load_with_bytes(region_id)
        self.notify(manifest, data)
        return manifest

    def load_version(self, region_id: RegionId, version: int) -> RegionManifest:
        """Read one version of a region's manifest; ``ObjectNotFoundError`` if it never existed or was deleted."""
        return _checked(region_id, Entry(version, self._register(region_id).read(version)))

    def load_with_bytes(self, region_id: RegionId) -> tuple[RegionManifest, bytes]:
        """Read the newest version of a region's manifest and its bytes, unobserved; errors as for ``load``."""
        found = self._find(region_id)
        if found is None:
            raise ObjectNotFoundError(
                "the region does not exist",
                remedy="choose one of the regions that `memwal status` lists",
                region_id=str(region_id),
            )
        return found

    def read(self, region_id: RegionId, version: int) -> bytes:
        """Return the bytes of one version; errors as for ``load_version``."""
        return self._register(region_id).read(version)

    def is_newest(self, manifest: RegionManifest) -> bool:
        """Return whether a version just loaded still has no successor; one request.

        Only for versions younger than any retention: the successors of an older one may be deleted.
        """
        return not self._register(manifest.region_id).exists(manifest.version + 1)

    def load_many(self, region_ids: Iterable[RegionId], concurrency: int | None = None) -> list[RegionManifest]:
        """Read the newest versions of many regions concurrently, in the order asked for.

        Regions without any manifest are left out: their creation is under way or was interrupted, so no
        writer can have written to them.
        """
        found = map_concurrently(self.find, region_ids, concurrency or self._settings.concurrency)
        return [manifest for manifest in found if manifest is not None]

    def commit(self, previous: RegionManifest, changed: RegionManifest, *, restores: bool = False) -> RegionManifest:
        """Write the version after ``previous``, the version on which the change is based.

        The version and commit id of ``changed`` are replaced. ``restores`` is for repairs, which alone may give a
        recorded generation another directory.

        Raises:
            ConflictError: Another process wrote that version. Load, check again, repeat.
            CommitUnknownError: It is unknown whether the version was written. Load the newest and look for
                the change.
            InvalidRequestError: The change breaks a rule of ``invariants``; nothing was written.
        """
        candidate = replace(changed, version=previous.version + 1, commit_id=self._ids.commit_id())
        violations = transition_violations(candidate, previous, restores=restores)
        _refuse(candidate, [*manifest_violations(candidate), *violations])
        return self._write(candidate)

    def update(
        self, region_id: RegionId, change: Change, *, check: _Check | None = None, restores: bool = False
    ) -> RegionManifest:
        """Change a region, repeating on the newest version when other processes were faster.

        ``change`` makes the wanted version from the stored one, or None if there is nothing to do; then the stored
        version is returned. ``check`` raises if the caller may not change the version given, for example because it
        was fenced. Both are called on each newer version, ``check`` first. ``restores`` is as for ``commit``.

        Raises:
            ConflictError: Other processes were faster each time. Try again later.
            CommitUnknownError: It is unknown whether the version was written. Load it and look for the change.
        """
        for attempt in range(_UPDATE_ATTEMPTS):
            if attempt:
                self._back_off(attempt)
            previous = self.load(region_id)
            if check is not None:
                check(previous)
            changed = change(previous)
            if changed is None:
                return previous
            try:
                return self.commit(previous, changed, restores=restores)
            except ConflictError:
                _log.debug("commit lost [region_id=%s, version=%d]", region_id, previous.version + 1)
        raise ConflictError(
            "other processes changed the region at each attempt",
            remedy="try again later; if it persists, find out which process commits so often",
            region_id=str(region_id),
            attempts=_UPDATE_ATTEMPTS,
        )

    def versions(self, region_id: RegionId) -> list[int]:
        """Return the existing manifest versions, ascending, by listing."""
        return self._register(region_id).versions()

    def delete_versions_before(
        self, region_id: RegionId, version: int, *, before_each: Callable[[], None] | None = None
    ) -> list[int]:
        """Delete old manifest versions; see ``VersionedRegister.delete_before``."""
        return self._register(region_id).delete_before(version, before_each=before_each)

    def region_ids(self) -> list[RegionId]:
        """Return the regions that have a directory, sorted, by listing ``_mem_wal/``."""
        found = []
        for name in self._store.list_directories(MEM_WAL_DIRECTORY):
            region_id = region_of(name)
            if region_id is not None:
                found.append(region_id)
            elif name not in RESERVED_NAMES:
                _log.warning("directory below _mem_wal is not a region and is ignored [name=%s]", name)
        if self._observer is not None:
            self._observer.on_regions(found)
        return sorted(found)

    def find(self, region_id: RegionId) -> RegionManifest | None:
        """Read the newest version of a region's manifest; None if the region has none.

        Raises:
            DamagedError: The newest version is damaged, breaks a rule, or is missing although the hint names it.
        """
        found = self._find(region_id)
        if found is None:
            return None
        self.notify(*found)
        return found[0]

    def _find(self, region_id: RegionId) -> tuple[RegionManifest, bytes] | None:
        try:
            entry = self._register(region_id).latest()
        except CorruptionError as error:
            path = str(error.facts.get("path", manifest_directory(region_id)))
            raise DamagedError.of(region_id, path, f"{error.what} ({error.facts.get('found', 'unknown')})") from error
        if entry is None:
            return None
        if entry.hinted > entry.version:
            raise DamagedError.of(
                region_id,
                manifest_path(region_id, entry.hinted),
                f"it is missing although the version hint names it; the newest version left is {entry.version}",
                version=entry.version,
            )
        return _checked(region_id, entry), entry.data

    def notify(self, manifest: RegionManifest, data: bytes) -> None:
        """Tell the observer of a newest version, which another process may have read; it may freeze the table."""
        if self._observer is not None:
            self._observer.on_manifest(manifest, data)

    def notify_missing(self, regions: Collection[RegionId]) -> None:
        """Tell the observer of regions that were created and are not listed; it may park them."""
        if regions and self._observer is not None:
            self._observer.on_missing(regions)

    def _register(self, region_id: RegionId) -> VersionedRegister:
        return VersionedRegister(self._store, manifest_directory(region_id), MANIFEST_SUFFIX)

    def _write(self, candidate: RegionManifest) -> RegionManifest:
        """Write one attempt and find out what became of it.

        Its bytes are the attempt's own. After a lost reply the same bytes are offered again: that finds our
        version (success), a rival's (``ConflictError``), or a free place to write to. A refusal then says nothing of
        the first attempt, which may have landed.
        """
        register = self._register(candidate.region_id)
        data = encode_manifest(candidate)
        for attempt in range(1, _SETTLE_ATTEMPTS + 1):
            try:
                register.create(candidate.version, data)
            except (UnavailableError, StoreRefusedError, InvalidRequestError) as error:
                if attempt == 1 and not isinstance(error, UnavailableError):
                    raise
                if attempt == _SETTLE_ATTEMPTS:
                    raise CommitUnknownError(
                        "the store did not say whether a manifest version was written",
                        remedy="load the region and look for the change before repeating it; delete nothing",
                        region_id=str(candidate.region_id),
                        version=candidate.version,
                        commit_id=candidate.commit_id.hex(),
                        cause=error.what,
                        reason=error.facts.get("reason"),
                    ) from error
                self._back_off(attempt)
            else:
                break
        return candidate

    def _back_off(self, attempt: int) -> None:
        longest = min(self._settings.retry_wait_s * 2.0 ** (attempt - 1), self._settings.retry_wait_max_s)
        self._clock.sleep(longest * self._rng.uniform(0.5, 1.0))


def _checked(region_id: RegionId, entry: Entry) -> RegionManifest:
    try:
        manifest = decode_manifest(entry.data, region_id=region_id, version=entry.version)
        _require_rules(manifest)
    except CorruptionError as error:
        path, cause = manifest_path(region_id, entry.version), apparent_damage(entry.data) or error.what
        raise DamagedError(error.what, remedy=error.remedy, **{**error.facts, "path": path, "cause": cause}) from error
    return manifest


def _require_rules(manifest: RegionManifest) -> None:
    violations = manifest_violations(manifest)
    if violations:
        raise CorruptionError(
            "a region manifest breaks a rule",
            remedy="stop all jobs of this table and follow docs/runbooks/corrupt-region-manifest.md",
            region_id=str(manifest.region_id),
            version=manifest.version,
            rules=[f"{violation.rule}: {violation.problem}" for violation in violations],
        )


def _refuse(candidate: RegionManifest, violations: list[Violation]) -> None:
    if violations:
        raise InvalidRequestError(
            "a change of a region manifest breaks a rule",
            remedy="correct the caller; use the functions of memwal_core.region.changes",
            region_id=str(candidate.region_id),
            version=candidate.version,
            rules=[f"{violation.rule}: {violation.problem}" for violation in violations],
        )
