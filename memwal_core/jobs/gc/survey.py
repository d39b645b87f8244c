"""Read what a garbage collection plans on: region manifests, then the base table, then the objects.

In this order nothing looks more finished than it is: a replay pointer that was read early is low, and a merge
that lands afterwards does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Self

from memwal_core.base_table import (
    BaseTable,
    RetainedVersion,
    files_of_other_bases,
    named_regions,
    recall_versions,
    retained_versions,
)
from memwal_core.errors import (
    CorruptionError,
    DamagedError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.memwal_index import is_internal_index
from memwal_core.format.paths import (
    ARROW_WAL_SUFFIX,
    LEASES_DIRECTORY,
    LEDGER_DIRECTORY,
    MERGE_STAGING_DIRECTORY,
    RECORD_DIRECTORY,
    ROWS_STAGING_DIRECTORY,
    TABLE_VERSIONS_DIRECTORY,
    UNNAMED_STREAM,
    WAL_SUFFIXES,
    batch_stream_directory,
    generation_path,
    number_of,
    parse_staged_manifest_name,
    region_directory,
)
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.contents import region_contents
from memwal_core.jobs.gc.policy import settled_s, wal_age_s
from memwal_core.jobs.gc.state import (
    BaseState,
    DirectoryState,
    GcRegionState,
    GcState,
    NumberedObject,
    Register,
    Resting,
)
from memwal_core.jobs.sharing.place import Work
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.region import ManifestStore, RegionManifest
from memwal_core.region.census import CensusTaker
from memwal_core.settings import WalCollection
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectInfo, ObjectStore

_NOT_READ = "references to WAL entries were not read"

ReadRegion = tuple[RegionId, RegionManifest | CorruptionError]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GcSurveyor:
    """Reads one table.

    Attributes:
        concurrency: Requests under way at once.
        collect_wal: Whose flushed MemTables are opened to find out which WAL entries they consist of.
        settled_before: When whoever may still acknowledge without a look at its region verified its epoch, at the
            earliest. None: nobody knows, and every WAL entry stays.
        old_before: WAL entries that were written later stay anyway, so that nothing is read for them; None: any may go.
        sharing: Divides a survey between executors; None: this process does it.
    """

    table: BaseTable
    manifests: ManifestStore
    concurrency: int
    collect_wal: WalCollection
    settled_before: datetime | None = None
    sharing: Sharing | None = None
    old_before: datetime | None = None

    @classmethod
    def of(cls, context: JobContext, sharing: Sharing | None = None, ahead: timedelta = timedelta()) -> Self:
        """Return what reads the table of a run; ``ahead`` is how far this machine's clock is, of the store's."""
        settings = context.settings
        now, gc, concurrency = context.clock.now() - ahead, settings.gc, settings.storage.concurrency
        settled, old = (now - timedelta(seconds=each(settings)) for each in (settled_s, wal_age_s))
        return cls(context.base, context.manifests, concurrency, gc.collect_wal, settled, sharing, old)

    @property
    def store(self) -> ObjectStore:
        """Objects below the table's root."""
        return self.table.store

    def survey(
        self,
        regions: Collection[RegionId] | None = None,
        resting_of: Callable[[int], Resting] | None = None,
    ) -> GcState:
        """Read the table and its regions, or only some of them.

        Args:
            regions: Those; None: all that are listed, and those that must exist.
            resting_of: Returns, for the number of all regions, those that need not be read.
        """
        listed = self._chosen(regions)
        resting = resting_of(len(listed)) if regions is None and resting_of is not None else Resting()
        region_ids = [each for each in listed if each not in resting.regions]
        if self.sharing is not None:
            self.sharing.choose(Work(regions=len(region_ids)))
        manifests = self._manifests_of(region_ids)
        base = self.base(resting.base)
        known = [resting.regions[each] for each in listed if each in resting.regions]
        read = {each.region_id: each.manifest for each in known if each.manifest is not None}
        read |= {each.region_id: each for each in manifests if isinstance(each, RegionManifest)}
        gone = [] if regions is not None or base.problem else self._gone(listed, read)
        pairs = [(region_id, each) for region_id, each in zip(region_ids, manifests, strict=True) if each is not None]
        found = self._contents_of(pairs)
        return GcState(
            table_uri=self.table.uri,
            base=base,
            regions=(*sorted([*found, *known], key=lambda each: each.region_id), *gone),
            staged=self.staged(),
            leases=self._registers(LEASES_DIRECTORY),
            ledgers=(*self._registers(LEDGER_DIRECTORY), *self._registers(RECORD_DIRECTORY)),
            merge_staging=self._below(MERGE_STAGING_DIRECTORY),
            row_staging=self._below(ROWS_STAGING_DIRECTORY),
            unnamed_batches=self._below(batch_stream_directory(UNNAMED_STREAM)),
        )

    def _manifests_of(self, region_ids: Sequence[RegionId]) -> list[RegionManifest | CorruptionError | None]:
        if self.sharing is None or not self.sharing.on_executors:
            return self.newest(region_ids)
        shares = self.sharing.run("read manifests", _read_manifests, self.sharing.divide(region_ids))
        return [each for share in shares for each in share]

    def _contents_of(self, pairs: Sequence[ReadRegion]) -> list[GcRegionState]:
        if self.sharing is None or not self.sharing.on_executors:
            return self.contents(pairs)
        listing = partial(_list_regions, settled_before=self.settled_before, old_before=self.old_before)
        shares = self.sharing.run("list regions", listing, self.sharing.divide(pairs))
        return [each for share in shares for each in share]

    def contents(self, pairs: Sequence[ReadRegion]) -> list[GcRegionState]:
        """List the objects of some regions, whose manifests were read before."""
        return map_concurrently(lambda pair: self._region(*pair), pairs, self.concurrency)

    def newest(self, region_ids: Sequence[RegionId]) -> list[RegionManifest | CorruptionError | None]:
        """Read the newest manifests of some regions, or what is wrong with them; None if a region is being created."""
        return map_concurrently(self._manifest, region_ids, self.concurrency)

    def _gone(self, listed: Collection[RegionId], read: Mapping[RegionId, RegionManifest]) -> list[GcRegionState]:
        """Return the regions that must exist and were not listed; those that this survey has ``read`` do exist."""
        taker = CensusTaker(self.store, self.manifests, self.concurrency)
        census = taker.take((), lambda _: read)
        census = census.with_known(taker, *named_regions(self.table, self.table.state()))
        return [
            GcRegionState(region_id, None, problem=str(each.error), is_damaged=True)
            for region_id, each in census.damaged.items()
            if region_id not in listed
        ]

    def _below(self, directory: str) -> tuple[ObjectInfo, ...]:
        return tuple(sorted(self.store.list_objects(directory), key=lambda each: each.path))

    def regions(self, regions: Collection[RegionId], base: BaseState) -> GcState:
        """Read some regions again, with a base table that was read before."""
        region_ids = sorted(regions)
        manifests = self.newest(region_ids)
        pairs = [(region_id, each) for region_id, each in zip(region_ids, manifests, strict=True) if each is not None]
        return GcState(self.table.uri, base, tuple(self.contents(pairs)))

    def base(self, known: BaseState | None = None) -> BaseState:
        """Read the base table, with the retained versions of ``known`` if it is given.

        Reusing them is safe: since then versions were only removed, or made from one of these.
        """
        try:
            state = self.table.state()
            indexes = [index for index in self.table.indexes(state.version) if not is_internal_index(index.name)]
            retained: tuple[RetainedVersion, ...] = (
                known.retained
                if known is not None and not known.problem
                else retained_versions(self.table, self.concurrency, held=state.version, recall=recall_versions)
            )
        except CorruptionError as error:
            return BaseState(0, 0, None, problem=str(error))
        problem = f"version {state.version} has a MemWAL index of an early release" if state.is_legacy else ""
        names = tuple(index.name for index in indexes)
        untrained = frozenset(index.name for index in indexes if not index.is_trained)
        return BaseState(state.version, state.num_rows, state.details, names, retained, problem, untrained)

    def _chosen(self, regions: Collection[RegionId] | None) -> list[RegionId]:
        existing = self.manifests.region_ids()
        if regions is None:
            return existing
        unknown = sorted(str(region) for region in regions if region not in existing)
        if unknown:
            raise InvalidRequestError(
                "the table has no such region", remedy="choose from `memwal status`", unknown=unknown
            )
        return sorted(regions)

    def _manifest(self, region_id: RegionId) -> RegionManifest | CorruptionError | None:
        try:
            return self.manifests.load(region_id)
        except CorruptionError as error:
            return error
        except ObjectNotFoundError:
            return None  # The region is being created, or its creation ended early: not ours to judge.

    def _region(self, region_id: RegionId, manifest: RegionManifest | CorruptionError) -> GcRegionState:
        problem = str(manifest) if isinstance(manifest, CorruptionError) else ""
        known = None if isinstance(manifest, CorruptionError) else manifest
        recorded = frozenset() if known is None else frozenset(each.path for each in known.flushed_generations)
        contents = region_contents(region_id, self.store.list_objects(region_directory(region_id)), recorded)
        found = contents.state(region_id, known)
        state = replace(
            found,
            directories=tuple(self._referring(found)),
            problem=problem,
            is_damaged=isinstance(manifest, DamagedError),
        )
        return state if known is None else self._with_history(self._with_settled(state, known), known)

    def _with_settled(self, state: GcRegionState, manifest: RegionManifest) -> GcRegionState:
        """Find the replay pointer that every writer knows; reads at most one old manifest version."""
        settled, flushed = self.settled_before, manifest.replay_after_wal_id
        if settled is None or not any(self._is_old(each) and each.number <= flushed for each in state.wal[:-1]):
            return state
        old = [each for each in state.versions if each.number <= manifest.version and each.info.modified <= settled]
        if not old:
            return state
        if old[-1].number == manifest.version:
            return replace(state, settled_wal_id=manifest.replay_after_wal_id)
        try:
            read = self._version(state.region_id, old[-1])
        except CorruptionError as error:
            return replace(state, problem=str(error), is_damaged=isinstance(error, DamagedError))
        return state if read is None else replace(state, settled_wal_id=read[1].replay_after_wal_id)

    def _is_old(self, entry: NumberedObject) -> bool:
        return self.old_before is None or entry.info.modified <= self.old_before

    def _with_history(self, state: GcRegionState, manifest: RegionManifest) -> GcRegionState:
        """Find out since when directories are unrecorded; reads old manifest versions only if it has to."""
        unrecorded = {each.name for each in state.directories} - state.recorded
        if not unrecorded:
            return state
        past = [version for version in state.versions if version.number <= manifest.version]
        try:
            read = map_concurrently(lambda each: self._version(state.region_id, each), past, self.concurrency)
        except CorruptionError as error:
            return replace(state, problem=str(error), is_damaged=isinstance(error, DamagedError))
        history = [each for each in read if each is not None]
        drained = {}
        for (_, older), (modified, _newer) in pairwise(history):
            # A later version that still records a directory overrides an earlier one.
            drained.update({each.path: modified for each in older.flushed_generations if each.path in unrecorded})
        return replace(
            state, drained=drained, epochs=tuple((modified, older.writer_epoch) for modified, older in history)
        )

    def _version(self, region_id: RegionId, version: NumberedObject) -> tuple[datetime, RegionManifest] | None:
        try:
            return version.info.modified, self.manifests.load_version(region_id, version.number)
        except ObjectNotFoundError:
            return None  # Deleted after the listing.

    def _referring(self, region: GcRegionState) -> Sequence[DirectoryState]:
        directories = region.directories
        flushed = 0 if region.manifest is None else region.manifest.replay_after_wal_id
        # The newest entry stays anyway; without another flushed one, references decide nothing.
        if not any(entry.number <= flushed for entry in region.wal[:-1]):
            return directories
        if region.wal_suffixes == {ARROW_WAL_SUFFIX}:
            return directories  # No Lance table consists of such files.
        if self.collect_wal is WalCollection.NONE:
            return [replace(each, wal_ids=None, problem=_NOT_READ) for each in directories]
        recorded = region.recorded
        return map_concurrently(
            lambda each: self._with_references(region.region_id, each, recorded=each.name in recorded),
            directories,
            self.concurrency,
        )

    def _with_references(self, region_id: RegionId, directory: DirectoryState, *, recorded: bool) -> DirectoryState:
        path = generation_path(region_id, directory.name)
        try:
            names = files_of_other_bases(self.store, path)
        except (UnavailableError, StoreRefusedError):
            raise  # It says nothing about the files.
        except MemwalError as error:
            if isinstance(error, ObjectNotFoundError) and not recorded:
                return directory  # The remains of a table that cannot be opened refer to nothing.
            _log.warning("flushed MemTable cannot be read [path=%s]: %s", path, error)
            return replace(directory, wal_ids=None, problem=str(error))
        # The name alone is enough to keep the entry, whatever base the file has.
        numbers = (number_of(name.rpartition("/")[2], suffix) for name in names for suffix in WAL_SUFFIXES)
        return replace(directory, wal_ids=frozenset(number for number in numbers if number is not None))

    def staged(self) -> tuple[NumberedObject, ...]:
        """Return the staged manifests of the base table, numbered by the version they were meant for."""
        found = []
        for info in self.store.list_objects(TABLE_VERSIONS_DIRECTORY):
            try:
                version = parse_staged_manifest_name(info.path.removeprefix(f"{TABLE_VERSIONS_DIRECTORY}/"))
            except InvalidRequestError:
                continue
            found.append(NumberedObject(version, info))
        return tuple(sorted(found, key=lambda each: each.info.path))

    def _registers(self, root: str) -> tuple[Register, ...]:
        registers: dict[tuple[str, str], list[NumberedObject]] = {}
        for info in self.store.list_objects(root):
            directory, _, name = info.path.rpartition("/")
            stem, dot, suffix = name.partition(".")
            number = number_of(f"{stem}{dot}{suffix}", dot + suffix) if dot else None
            if number is not None:
                registers.setdefault((directory, dot + suffix), []).append(NumberedObject(number, info))
        return tuple(
            Register(directory, suffix, tuple(sorted(versions, key=lambda each: each.number)))
            for (directory, suffix), versions in sorted(registers.items())
        )


def _read_manifests(
    context: JobContext, region_ids: Sequence[RegionId]
) -> list[RegionManifest | CorruptionError | None]:
    return GcSurveyor.of(context).newest(region_ids)


def _list_regions(
    context: JobContext, regions: Sequence[ReadRegion], *, settled_before: datetime | None, old_before: datetime | None
) -> list[GcRegionState]:
    surveyor = replace(GcSurveyor.of(context), settled_before=settled_before, old_before=old_before)
    return surveyor.contents(regions)
