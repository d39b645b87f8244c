"""The versions of region manifests in a table: create, load, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from memwal_core.clock import Clock, SystemClock
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.ids import IdSource, RegionId, parse_region_id
from memwal_core.manifest.codec import decode_manifest, encode_manifest
from memwal_core.manifest.invariants import Violation, manifest_violations, transition_violations
from memwal_core.manifest.model import RegionManifest, RegionStatus
from memwal_core.register import FIRST_VERSION, Entry, VersionedRegister
from memwal_core.rng import Rng, system_rng
from memwal_core.settings import StorageSettings
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.layout import (
    MANIFEST_SUFFIX,
    MEM_WAL_DIRECTORY,
    RESERVED_NAMES,
    manifest_directory,
)
from memwal_core.storage.protocol import ObjectStore

Change = Callable[[RegionManifest], RegionManifest | None]
Check = Callable[[RegionManifest], None]

_REGION_ID_VERSION = 4
_UPDATE_ATTEMPTS = 20
_SETTLE_ATTEMPTS = 3

_log = logging.getLogger(__name__)


class ManifestStore:
    """All region manifests of one table. Safe to share between threads.

    Args:
        store: The table's store.
        ids: Source of commit ids. Every attempt writes a fresh one, so that two processes that
            make the same change differ in bytes and only one of them can believe it won.
        settings: Concurrency of reads, and the waits between attempts.
        clock: What waits.
        rng: Jitter of the waits.
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
        """Keep the parts; no request is made."""
        self._store = store
        self._ids = ids
        self._settings = settings if settings is not None else StorageSettings()
        self._clock = clock if clock is not None else SystemClock()
        self._rng = rng if rng is not None else system_rng()

    def create(
        self,
        region_id: RegionId,
        *,
        region_spec_id: int = 0,
        region_field_values: Mapping[str, bytes] = MappingProxyType({}),
        status: RegionStatus = RegionStatus.ACTIVE,
    ) -> RegionManifest:
        """Create a region.

        Args:
            region_id: A new UUID version 4.
            region_spec_id: Spec that asked for the region; 0 = created by hand.
            region_field_values: Field id -> Arrow scalar bytes.
            status: SEALED for regions of the ``lance`` codec (decision 0002).

        Returns:
            Version 1, as stored.

        Raises:
            ObjectExistsError: The region exists.
            InvalidRequestError: The id is no UUID version 4.
            CommitUnknownError: It is unknown whether the region was created. Load it.
            UnavailableError: The store does not answer; nothing was written.
        """
        if region_id.version != _REGION_ID_VERSION:
            raise InvalidRequestError(
                "a region id must be a UUID version 4",
                remedy="make one with IdSource.region_id()",
                region_id=str(region_id),
                found_version=region_id.version,
            )
        register = self._register(region_id)
        existing = register.latest()
        if existing is not None:
            raise ObjectExistsError(
                "the region exists", remedy="load it", region_id=str(region_id), version=existing.version
            )
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
            ObjectNotFoundError: There is no such region.
            CorruptionError: The newest version is damaged or breaks a rule. Change nothing.
            UnavailableError: The store does not answer. Back off and retry.
        """
        manifest = self._find(region_id)
        if manifest is None:
            raise ObjectNotFoundError(
                "there is no such region", remedy="`memwal status` shows the regions", region_id=str(region_id)
            )
        return manifest

    def load_version(self, region_id: RegionId, version: int) -> RegionManifest:
        """Read one version of a region's manifest.

        Raises:
            ObjectNotFoundError: The version does not exist, or no longer.
            CorruptionError: It is damaged or breaks a rule.
            UnavailableError: The store does not answer. Back off and retry.
        """
        return _checked(region_id, Entry(version, self._register(region_id).read(version)))

    def is_newest(self, manifest: RegionManifest) -> bool:
        """Return whether a version just loaded still has no successor; one request.

        Only for versions younger than any retention: the successors of an older one may be deleted.

        Raises:
            UnavailableError: The store does not answer. Back off and retry.
        """
        return not self._register(manifest.region_id).exists(manifest.version + 1)

    def load_many(self, region_ids: Iterable[RegionId], concurrency: int | None = None) -> list[RegionManifest]:
        """Read the newest versions of many regions at once.

        Args:
            region_ids: Regions to read.
            concurrency: Regions read at a time; by default the setting.

        Returns:
            In the order asked for. Regions without any manifest are left out: they are just being
            created, or a creation ended early; nobody can have written to them.

        Raises:
            CorruptionError: A manifest is damaged or breaks a rule. Change nothing.
            UnavailableError: The store does not answer. Back off and retry.
        """
        found = map_concurrently(self._find, region_ids, concurrency or self._settings.concurrency)
        return [manifest for manifest in found if manifest is not None]

    def commit(self, previous: RegionManifest, changed: RegionManifest) -> RegionManifest:
        """Write the version after ``previous``, if nobody else has.

        Args:
            previous: The version that the change is based on, as loaded.
            changed: The wanted state; its version and commit id are replaced.

        Returns:
            The version as stored.

        Raises:
            ConflictError: Somebody else wrote that version. Load, check again, repeat.
            CommitUnknownError: It is unknown whether the version was written. Load the newest and
                look for the change.
            InvalidRequestError: The change breaks a rule of ``invariants``; nothing was written.
        """
        candidate = replace(changed, version=previous.version + 1, commit_id=self._ids.commit_id())
        _refuse(candidate, [*manifest_violations(candidate), *transition_violations(candidate, previous)])
        return self._write(candidate)

    def update(self, region_id: RegionId, change: Change, *, check: Check | None = None) -> RegionManifest:
        """Change a region, repeating on the newest version when others were faster.

        Args:
            region_id: The region.
            change: From the stored version to the wanted one, or None if nothing is to be done.
                Called again on each newer version.
            check: Raises if the caller may not change the version given, for example because it
                was fenced. Called before each ``change``.

        Returns:
            The version written; the stored one if nothing was to be done.

        Raises:
            ConflictError: Others were faster each time. Try again later.
            CommitUnknownError: As for ``commit``.
            ObjectNotFoundError: There is no such region.
            InvalidRequestError: The change breaks a rule; nothing was written.
            CorruptionError: The stored version is damaged.
            UnavailableError: The store does not answer; nothing was written.
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
                return self.commit(previous, changed)
            except ConflictError:
                _log.debug("commit lost [region_id=%s, version=%d]", region_id, previous.version + 1)
        raise ConflictError(
            "others changed the region each time",
            remedy="try again later; if it stays, find out who commits so often",
            region_id=str(region_id),
            attempts=_UPDATE_ATTEMPTS,
        )

    def versions(self, region_id: RegionId) -> list[int]:
        """Return the manifest versions that exist, ascending, by listing."""
        return self._register(region_id).versions()

    def delete_versions_before(
        self, region_id: RegionId, version: int, *, before_each: Callable[[], None] | None = None
    ) -> list[int]:
        """Delete old manifest versions; see ``VersionedRegister.delete_before``.

        Raises:
            InvalidRequestError: The version does not exist or is the newest. Nothing was deleted.
            UnavailableError: The store does not answer. What was deleted stays deleted; repeat.
        """
        return self._register(region_id).delete_before(version, before_each=before_each)

    def region_ids(self) -> list[RegionId]:
        """Return the regions that have a directory, sorted, by listing ``_mem_wal/``.

        Raises:
            UnavailableError: The store does not answer. Back off and retry.
        """
        found = []
        for name in self._store.list_directories(MEM_WAL_DIRECTORY):
            if name in RESERVED_NAMES:
                continue
            try:
                region_id = parse_region_id(name)
            except InvalidRequestError:
                region_id = None
            if region_id is None or str(region_id) != name:
                _log.warning("directory below _mem_wal is no region and is ignored [name=%s]", name)
            else:
                found.append(region_id)
        return sorted(found)

    def _find(self, region_id: RegionId) -> RegionManifest | None:
        entry = self._register(region_id).latest()
        return None if entry is None else _checked(region_id, entry)

    def _register(self, region_id: RegionId) -> VersionedRegister:
        return VersionedRegister(self._store, manifest_directory(region_id), MANIFEST_SUFFIX)

    def _write(self, candidate: RegionManifest) -> RegionManifest:
        """Write one attempt and find out what became of it.

        Its bytes are the attempt's own. After a missing reply the same bytes are offered again:
        that finds our version (success), somebody else's (conflict), or a free place to write to.

        Raises:
            CommitUnknownError: No attempt got a reply.
        """
        register = self._register(candidate.region_id)
        data = encode_manifest(candidate)
        for attempt in range(1, _SETTLE_ATTEMPTS + 1):
            try:
                register.create(candidate.version, data)
            except UnavailableError as error:
                if attempt == _SETTLE_ATTEMPTS:
                    raise CommitUnknownError(
                        "the store did not say whether a manifest version was written",
                        remedy="load the region and look for the change before repeating it; delete nothing",
                        region_id=str(candidate.region_id),
                        version=candidate.version,
                        commit_id=candidate.commit_id.hex(),
                    ) from error
                self._back_off(attempt)
            else:
                break
        return candidate

    def _back_off(self, attempt: int) -> None:
        longest = min(self._settings.retry_wait_s * 2.0 ** (attempt - 1), self._settings.retry_wait_max_s)
        self._clock.sleep(longest * self._rng.uniform(0.5, 1.0))


def _checked(region_id: RegionId, entry: Entry) -> RegionManifest:
    manifest = decode_manifest(entry.data, region_id=region_id, version=entry.version)
    violations = manifest_violations(manifest)
    if violations:
        raise CorruptionError(
            "a region manifest breaks a rule",
            remedy="stop all jobs of this table and follow docs/runbooks/corrupt-region-manifest.md",
            region_id=str(region_id),
            version=entry.version,
            rules=[f"{violation.rule}: {violation.problem}" for violation in violations],
        )
    return manifest


def _refuse(candidate: RegionManifest, violations: list[Violation]) -> None:
    if violations:
        raise InvalidRequestError(
            "a change of a region manifest breaks a rule",
            remedy="correct the caller; use the functions of memwal_core.manifest.changes",
            region_id=str(candidate.region_id),
            version=candidate.version,
            rules=[f"{violation.rule}: {violation.problem}" for violation in violations],
        )
