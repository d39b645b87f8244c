"""Finding one moment of a table that is written to.

The order of reads makes it consistent: the maintenance record and those of batches, then region manifests, then the
newest version of the base table, then WAL listings. Rows that moved on between two reads are found at both places,
never at neither. If the version has merged what a manifest does not know yet, everything is read again.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from memwal_core.base_table import TableState
from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.commit.snapshots import named_regions
from memwal_core.coordination.freeze import MaintenanceRecord
from memwal_core.errors import ConflictError, DamagedError, InvalidRequestError, ObjectNotFoundError
from memwal_core.flushed.read import open_generation
from memwal_core.flushed.read.opening import shared_files
from memwal_core.format.paths import (
    BIRTH_SUFFIX,
    DATA_DIRECTORY,
    DELETIONS_DIRECTORY,
    QUALITY_DIRECTORY,
    RESERVATIONS_DIRECTORY,
    TRANSACTIONS_DIRECTORY,
    WAL_SUFFIXES,
    WRITERS_DIRECTORY,
    generation_path,
    number_of,
    parse_region_birth,
    wal_directory,
)
from memwal_core.format.table_manifest import read_named_files
from memwal_core.ids import RegionId
from memwal_core.jobs.backup.batches import batch_records, read_all
from memwal_core.jobs.backup.plan import CopiedFile, out_of_step, unflushed_entries
from memwal_core.jobs.context import OpenTable
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.region.census import CensusTaker
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import codec_for_suffix

_ATTEMPTS = 20
_FIRST_WAIT_S = 0.05
_DOCUMENTS = (f"{QUALITY_DIRECTORY}/quarantined", f"{QUALITY_DIRECTORY}/released", RESERVATIONS_DIRECTORY)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundRegion:
    """A region at one moment.

    Attributes:
        manifest: Its newest manifest.
        wal_entries: How many WAL entries are not flushed.
    """

    manifest: RegionManifest
    content: bytes
    files: tuple[CopiedFile, ...]
    wal_entries: int


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table at one moment, as it was found.

    Attributes:
        record: The maintenance record, as it was before everything else was read.
        documents: Records of batches, reservations, birth marks and decisions about quality, by path.
    """

    record: MaintenanceRecord
    state: TableState
    manifest: tuple[str, bytes]
    files: tuple[CopiedFile, ...]
    documents: Mapping[str, bytes]
    releases: Mapping[str, bytes]
    regions: tuple[FoundRegion, ...]


class _MovedOnError(Exception):
    """The table changed between two reads, so that they do not belong together."""


class Pinner:
    """Finds moments of one table."""

    def __init__(self, opened: OpenTable) -> None:
        """Keep the parts; nothing is read."""
        self._opened = opened
        self._store = opened.base.store
        self._concurrency = opened.settings.storage.concurrency

    def pin(self) -> FoundTable:
        """Return a moment that is not before this call.

        Raises:
            DamagedError: A region cannot be read, or is merged and gone, as all are on a clone that Lance made.
            InvalidRequestError: The table has files elsewhere, or no MemWAL index.
            ConflictError: The table changed during every attempt, or misses files. Try again, or run the doctor.
        """
        why = ""
        for attempt in range(_ATTEMPTS):
            try:
                return self._look()
            except (_MovedOnError, ObjectNotFoundError) as error:
                why = str(error)
                _log.info("the table moved on, looking again [table=%s, attempt=%d]: %s", self._store.uri, attempt, why)
                self._opened.clock.sleep(min(1.0, _FIRST_WAIT_S * 2.0**attempt))
        raise ConflictError(
            "no consistent moment of the table was found",
            remedy="try again; if it persists, `memwal doctor` tells which file is missing",
            table=self._store.uri,
            attempts=_ATTEMPTS,
            last=why,
        )

    def _look(self) -> FoundTable:
        record = self._opened.freezes.load() or MaintenanceRecord()
        releases = self._contents([WRITERS_DIRECTORY])
        documents = self._contents(_DOCUMENTS)
        batches = batch_records(self._store, self._concurrency)
        taker = CensusTaker(self._store, self._opened.manifests, self._concurrency)
        census = taker.take()
        manifests = census.require_all()
        contents = map_concurrently(
            lambda each: self._opened.manifests.read(each.region_id, each.version), manifests, self._concurrency
        )
        state = self._opened.base.state()
        merged = self._opened.base.require_mem_wal(state).merged_generations
        # A region that the version names and was not listed came since, which another look finds, or is gone for good.
        known = census.with_known(taker, *named_regions(self._opened.base, state)).require_all()
        if len(known) > len(manifests):
            raise _MovedOnError("regions were created since they were listed")
        for problem in out_of_step(manifests, merged):
            raise _MovedOnError(problem)
        path = self._opened.base.manifests.locate(state.version).path
        content = self._store.get(path)
        regions = [
            self._region(manifest, data, merged.get(manifest.region_id, 0))
            for manifest, data in zip(manifests, contents, strict=True)
        ]
        return FoundTable(
            record=record,
            state=state,
            manifest=(path, content),
            files=tuple(self._base_files(state, content)),
            documents=batches | _of_regions(documents, {each.region_id for each in manifests}),
            releases=releases,
            regions=tuple(regions),
        )

    def _base_files(self, state: TableState, content: bytes) -> list[CopiedFile]:
        require_no_blobs(state.schema, "back up")
        if self._opened.base.dataset(state.version).base_paths():
            raise InvalidRequestError(
                "the table has files at other addresses, as a shallow clone does",
                remedy="stop its writers and merge it; then make a table of its own with Lance's deep_clone, which "
                "leaves behind what is not merged, and run `memwal merge` there",
                table=self._store.uri,
                version=state.version,
            )
        named = read_named_files(content)
        listed: dict[str, CopiedFile] = {}
        for directory in (DATA_DIRECTORY, DELETIONS_DIRECTORY, TRANSACTIONS_DIRECTORY):
            listed |= {each.source: each for each in self._listed(directory)}
        missing = sorted(named.files - listed.keys())
        found = map_concurrently(self._file, missing, self._concurrency)
        indexes = map_concurrently(self._listed, sorted(named.directories), self._concurrency)
        return [
            *(listed[path] for path in sorted(named.files & listed.keys())),
            *found,
            *(each for files in indexes for each in files),
        ]

    def _region(self, manifest: RegionManifest, content: bytes, merged: int) -> FoundRegion:
        region_id = manifest.region_id
        listed: dict[int, CopiedFile] = {}
        for each in self._listed(wal_directory(region_id)):
            name = each.source.rpartition("/")[2]
            found = (number_of(name, suffix) for suffix in WAL_SUFFIXES)
            listed |= {number: each for number in found if number is not None}
        if was_claimed_since(self._opened.manifests, manifest):
            listed = self._before_claim(manifest, listed)
        entries = unflushed_entries(manifest.replay_after_wal_id, listed)
        if entries is None:
            raise _MovedOnError(f"the WAL of region {region_id} has a hole behind {manifest.replay_after_wal_id}")
        wanted = {listed[each].source: listed[each] for each in entries}
        for recorded in manifest.flushed_generations:
            wanted |= self._generation(region_id, recorded, is_merged=recorded.generation <= merged)
        unflushed = sum(1 for each in entries if each > manifest.replay_after_wal_id)
        return FoundRegion(manifest, content, tuple(wanted.values()), unflushed)

    def _before_claim(self, manifest: RegionManifest, listed: Mapping[int, CopiedFile]) -> dict[int, CopiedFile]:
        """Leave out what later writers have written: a writer of the copy would be fenced by their epochs."""

        def epoch(wal_id: int) -> int:
            source = listed[wal_id].source
            try:
                codec = codec_for_suffix(f".{source.rpartition('.')[2]}", {})
                return codec.read(self._store, manifest.region_id, wal_id).writer_epoch
            except DamagedError as error:
                if self._store.head(source) is None:
                    raise _MovedOnError(f"{source} is gone") from error
                raise

        unflushed = sorted(each for each in listed if each > manifest.replay_after_wal_id)
        left_out = set(unflushed[bisect_right(unflushed, manifest.writer_epoch, key=epoch) :])
        return {wal_id: each for wal_id, each in listed.items() if wal_id not in left_out}

    def _generation(
        self, region_id: RegionId, recorded: FlushedGeneration, *, is_merged: bool
    ) -> dict[str, CopiedFile]:
        path = generation_path(region_id, recorded.path)
        try:
            shared = shared_files(open_generation(self._store.uri_of(path), self._store.storage_options))
        except ObjectNotFoundError:
            if is_merged:
                return {}  # Merged, and collected before its record was removed.
            raise
        entries = map_concurrently(lambda name: self._file(f"{wal_directory(region_id)}/{name}"), shared, 8)
        return {each.source: each for each in (*self._listed(path), *entries)}

    def _listed(self, directory: str) -> list[CopiedFile]:
        return [CopiedFile(each.path, each.path, each.size_bytes) for each in self._store.list_objects(directory)]

    def _file(self, path: str) -> CopiedFile:
        info = self._store.head(path)
        if info is None:
            raise _MovedOnError(f"{path} is gone")
        return CopiedFile(path, path, info.size_bytes)

    def _contents(self, directories: Iterable[str]) -> dict[str, bytes]:
        paths = [each.source for directory in directories for each in self._listed(directory)]
        return read_all(self._store, paths, self._concurrency)  # A quarantine may have ended.


def _of_regions(documents: Mapping[str, bytes], regions: set[RegionId]) -> dict[str, bytes]:
    """Leave out birth marks of regions that came later."""
    return {
        path: data
        for path, data in documents.items()
        if not path.endswith(BIRTH_SUFFIX) or parse_region_birth(path)[0] in regions
    }


def was_claimed_since(manifests: ManifestStore, manifest: RegionManifest) -> bool:
    """Return whether another writer has claimed a region after this manifest; a claim precedes its WAL entries."""
    if manifests.is_newest(manifest):
        return False
    return manifests.load(manifest.region_id).writer_epoch != manifest.writer_epoch
