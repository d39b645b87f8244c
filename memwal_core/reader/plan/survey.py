"""Finding where the rows of a table are, in an order that misses none.

Rows travel from MemTables to flushed MemTables to the base table. A reader that visits the places in the same order can
see a row twice but never miss it: first the MemTables of this process, then region manifests and WALs, last one version
of the base table with the merge progress that belongs to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from memwal_core.base_table import TableReader, TableState, named_regions, read_snapshot, regions_at_rest
from memwal_core.clock import at_millis
from memwal_core.errors import CorruptionError, DamagedError, InvalidRequestError, ObjectNotFoundError, UnavailableError
from memwal_core.format.memwal_index.snapshot import snapshot_manifests
from memwal_core.format.paths import ARROW_WAL_SUFFIX, LANCE_WAL_SUFFIX, manifest_path, wal_directory, wal_entry_path
from memwal_core.ids import RegionId
from memwal_core.reader.freshness import Consistency
from memwal_core.reader.history import NOTHING_REMEMBERED, Doubts, ReadHistory, Recollection
from memwal_core.reader.plan.sources import (
    GenerationSource,
    ObservedRegion,
    RegionHolder,
    SourceKind,
    WalSpan,
    observe_in_process,
)
from memwal_core.region import ManifestStore, RegionManifest, RegionStatus
from memwal_core.region.census import MANY_REGIONS, Census, CensusTaker, DamagedRegion, NeededRegions
from memwal_core.region.holes import missing_generations
from memwal_core.storage import ObjectStore
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import WalEntry, codec_for_suffix, read_entries, same_columns, tail_positions

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Survey:
    """Where the rows of a table are.

    Attributes:
        state: One version of the base table; its merge progress belongs to exactly these rows.
        taken: Rows written before this time are contained, as far as ``achieved`` reaches; timezone UTC.
        frozen: Causes for which the table is frozen, so that no job works on it, or will be once one looks at it.
        damaged: Regions that exist and cannot be read; a read must prove that it needs none of them.
    """

    state: TableState
    regions: tuple[ObservedRegion, ...]
    asked: Consistency
    achieved: Consistency
    taken: datetime
    is_time_travel: bool = False
    frozen: tuple[str, ...] = ()
    damaged: tuple[DamagedRegion, ...] = ()

    def require_whole(self) -> None:
        """Refuse to go on if a region cannot be read; ``DamagedError``."""
        for each in self.damaged:
            raise each.error


class Needs(NeededRegions, Protocol):
    """Which regions a read needs, as one version of the table tells it."""

    def fits(self, state: TableState) -> bool:
        """Tell whether a newer version tells the same."""
        ...


class Surveyor:
    """Surveys one table.

    Args:
        holders: Gives the region writers of this process, at each survey anew.
        reads_wal: Whether unflushed rows are read; if not, only where they are is found out.
    """

    def __init__(
        self,
        table: TableReader,
        manifests: ManifestStore,
        holders: Callable[[], Sequence[RegionHolder]] = tuple,
        *,
        history: ReadHistory | None = None,
        reads_wal: bool = True,
    ) -> None:
        self._table = table
        self._manifests = manifests
        self._history: ReadHistory = history if history is not None else NOTHING_REMEMBERED
        self._reads_wal = reads_wal
        self._holders = holders
        self._concurrency = table.settings.storage.concurrency
        self._taker = CensusTaker(table.store, manifests, self._concurrency)
        self._rows: tuple[tuple[object, ...], tuple[RegionManifest, ...]] = ((), ())
        self._last: TableState | None = None

    def survey(
        self, consistency: Consistency, version: int | None = None, needs: Callable[[TableState], Needs] | None = None
    ) -> Survey:
        """Find the rows of the table.

        Args:
            consistency: Where to look for rows that are not in the base table yet.
            version: An old table version; its own region snapshot is used.
            needs: Tells from a version of the table which regions are needed; others may be missing in the survey.
                All if None, or if it raises ``InvalidRequestError``.

        Raises:
            InvalidRequestError: The table has no usable primary key, or an old version was asked for with another
                consistency than ``snapshot``.
            ObjectNotFoundError: The version does not exist.
            CorruptionError: A manifest, WAL or snapshot is damaged.
            UnavailableError: Storage failed, or the table changed faster than it could be read.
        """
        if version is not None:
            return self._survey_version(consistency, version)
        if consistency is Consistency.SNAPSHOT:
            return self._survey_snapshot()
        for attempt in range(1, _ATTEMPTS + 1):
            found = self._look(consistency, attempt, needs)
            if found is not None:
                return found
        raise UnavailableError(
            "regions were flushed and merged faster than they could be read",
            remedy="read again, or use consistency `latest`",
            table=self._table.uri,
            attempts=_ATTEMPTS,
        )

    def _look(
        self, consistency: Consistency, attempt: int, needs: Callable[[TableState], Needs] | None
    ) -> Survey | None:
        """Survey once; None if the table changed meanwhile, or what looks wrong has to be looked at again."""
        taken = self._table.clock.now()
        # First: what is read after it follows it, if the table goes on where it was seen.
        recalled = self._history.recall(again=attempt > 1)
        needed = self._needed(needs)
        regions, census, achieved = self._observe(consistency, recalled, needed, again=attempt > 1)
        state = self._last = self._table.state()
        if needed is not None and not needed.fits(state):
            return None
        if regions and state.details is None:
            self._table.require_mem_wal(state)  # Without progress, merged generations cannot be told apart.
        known = census.with_known(self._taker, *self._named(state))
        doubts = recalled.doubts(state, [each.manifest for each in regions if not each.in_memory])
        ahead = _ahead(regions, state)
        gaps = _gaps(regions, state) if not doubts.turned_back else {}
        is_doubtful = doubts.are_new or gaps or not known.damaged.keys().isdisjoint(recalled.regions)
        is_decided = attempt > 1 or not is_doubtful
        # Regions were created after the listing, or were flushed and merged since they were read, or a person may have
        # decided since the record was read.
        if len(known.manifests) > len(regions) or not is_decided or self._went_on(ahead, state):
            return None
        refused = {**gaps, **_doubted(regions, doubts), **ahead}
        regions = tuple(region for region in regions if region.manifest.region_id not in refused)
        hurt = (*known.damaged.values(), *refused.values())
        return Survey(state, regions, consistency, achieved, taken, frozen=doubts.causes, damaged=hurt)

    def _went_on(self, ahead: Mapping[RegionId, DamagedRegion], state: TableState) -> bool:
        """Tell whether some regions have generations by now that a version read before has merged."""
        now = map(ObservedRegion, self._taker.read(ahead).manifests) if ahead else ()
        return _ahead(now, state).keys() != ahead.keys()

    def _needed(self, needs: Callable[[TableState], Needs] | None) -> Needs | None:
        """Return what is needed by the newest version known; whether it still holds is seen after the manifests."""
        if needs is None:
            return None
        try:
            return needs(self._last if self._last is not None else self._table.state())
        except InvalidRequestError:
            return None  # What does not fit is refused where it is used.

    def _survey_version(self, consistency: Consistency, version: int) -> Survey:
        if consistency is not Consistency.SNAPSHOT:
            raise InvalidRequestError(
                "an old version can only be read with its own region snapshot",
                remedy="read the version with consistency `snapshot`",
                consistency=str(consistency),
                version=version,
            )
        state = self._table.state(version)
        manifests, taken = self._snapshot_of(state)
        regions = tuple(map(ObservedRegion, manifests or ()))
        causes = self._history.recall().causes
        return Survey(state, regions, consistency, consistency, taken, is_time_travel=True, frozen=causes)

    def _survey_snapshot(self) -> Survey:
        recalled = self._history.recall()
        state = self._table.state()
        doubts = recalled.doubts(state, ())
        if doubts.are_new:
            recalled = self._history.recall(again=True)
            state = self._table.state()
            doubts = recalled.doubts(state, ())
        manifests, taken = self._snapshot_of(state)
        if manifests is not None:
            regions = tuple(map(ObservedRegion, manifests))
            return Survey(state, regions, Consistency.SNAPSHOT, Consistency.SNAPSHOT, taken, frozen=doubts.causes)
        # No snapshot is published yet: the manifests are what it would be made of.
        return replace(self.survey(Consistency.LATEST), asked=Consistency.SNAPSHOT)

    def _snapshot_of(self, state: TableState) -> tuple[tuple[RegionManifest, ...] | None, datetime]:
        details = state.details
        found = None if details is None else read_snapshot(self._table, state)
        if details is None or found is None:
            return None, state.timestamp
        return snapshot_manifests(found), at_millis(details.snapshot_ts_millis)

    def _named(self, state: TableState) -> tuple[Iterable[RegionId], tuple[RegionManifest, ...]]:
        """Return the regions with merge progress, and the rows of the region snapshot; these are read once."""
        details = state.details
        if details is None:
            return (), ()
        name = (details.snapshot_ts_millis, details.num_regions, details.inline_snapshots)
        if name != self._rows[0]:
            self._rows = (name, named_regions(self._table, state)[1])
        return details.merged_generations, self._rows[1]

    def _observe(
        self, consistency: Consistency, recalled: Recollection, needed: Needs | None, *, again: bool = False
    ) -> tuple[tuple[ObservedRegion, ...], Census, Consistency]:
        in_process: dict[RegionId, ObservedRegion] = {}
        if consistency is Consistency.IN_PROCESS:
            in_process = {holder.region_id: observe_in_process(holder.view()) for holder in self._holders()}
        known_of = self._at_rest if not again else None
        census = (
            self._taker.take(recalled.regions, known_of)
            if needed is None
            else self._taker.take_needed(needed, recalled.regions)
        )
        if consistency is Consistency.LATEST:
            return tuple(map(ObservedRegion, census.manifests)), census, consistency

        def observe(manifest: RegionManifest) -> ObservedRegion | DamagedRegion:
            # Of a region at rest it is known without a look that it has no unflushed rows.
            is_at_rest = manifest.region_id in census.unread and manifest.region_id not in in_process
            if is_at_rest and manifest.replay_after_wal_id == manifest.known_wal_id:
                return ObservedRegion(manifest)
            try:
                return self._unflushed(manifest, in_process.get(manifest.region_id))
            except CorruptionError as error:
                return DamagedRegion(manifest.region_id, _of_wal(manifest, error), manifest)

        found = map_concurrently(observe, census.manifests, self._concurrency)
        observed = tuple(each for each in found if isinstance(each, ObservedRegion))
        damaged = {**census.damaged, **{each.region_id: each for each in found if isinstance(each, DamagedRegion)}}
        everything = consistency is Consistency.IN_PROCESS and all(region.in_memory for region in observed)
        manifests = tuple(region.manifest for region in observed)
        achieved = Consistency.IN_PROCESS if everything else Consistency.DURABLE
        return observed, replace(census, manifests=manifests, damaged=damaged), achieved

    def _at_rest(self, regions: int) -> Mapping[RegionId, RegionManifest]:
        """Return what need not be read: the newest version known has the rows, a listing after it what still holds."""
        if regions <= MANY_REGIONS:
            return {}
        return regions_at_rest(self._table, self._last if self._last is not None else self._table.state())

    def _unflushed(self, manifest: RegionManifest, in_process: ObservedRegion | None) -> ObservedRegion:
        # A fenced writer of this process no longer knows the region; its rows are in the WAL.
        if in_process is not None and in_process.manifest.writer_epoch >= manifest.writer_epoch:
            return in_process
        manifest, span, entries = self._tail(manifest)
        if not self._reads_wal and span.positions:
            return ObservedRegion(manifest, (_unflushed_source(manifest, span, None),))
        rows = [entry.rows for entry in entries if entry.rows.num_rows]
        if not rows:
            return ObservedRegion(manifest)
        tail = in_one_table(rows, manifest.region_id)
        return ObservedRegion(manifest, (_unflushed_source(manifest, span, tail),))

    def _tail(self, manifest: RegionManifest) -> tuple[RegionManifest, WalSpan, list[WalEntry]]:
        """Find the unflushed rows of a manifest, or of a newer one that is then returned with them.

        Entries that were flushed meanwhile may already be collected: they are missing here and their generation is
        missing in the old manifest. So the manifest is read again after the entries.
        """
        suffix = wal_suffix(self._table.store, manifest)
        while True:
            problem: CorruptionError | ObjectNotFoundError | None = None
            span = WalSpan(suffix, 1, 0)
            entries: list[WalEntry] = []
            try:
                span, entries = self._look_at_tail(manifest, suffix)
            except (CorruptionError, ObjectNotFoundError) as error:
                problem = error
            newer = manifest if self._manifests.is_newest(manifest) else self._manifests.load(manifest.region_id)
            if newer.replay_after_wal_id == manifest.replay_after_wal_id:
                if problem is not None:
                    raise problem
                return manifest, span, entries
            manifest = newer

    def _look_at_tail(self, manifest: RegionManifest, suffix: str) -> tuple[WalSpan, list[WalEntry]]:
        codec = codec_for_suffix(suffix, {})
        where = (self._table.store, manifest.region_id, codec)
        span = WalSpan.of(
            suffix,
            tail_positions(*where, manifest.replay_after_wal_id, manifest.wal_id_last_seen, self._concurrency),
        )
        return span, read_entries(*where, span.positions, self._concurrency) if self._reads_wal else []


def _of_wal(manifest: RegionManifest, error: CorruptionError) -> DamagedError:
    """Return the error of a region whose WAL cannot be read; it names a file, or the place of one that is missing."""
    if isinstance(error, DamagedError):
        return error
    path = error.facts.get("path", wal_directory(manifest.region_id))
    facts = {**error.facts, "region_id": str(manifest.region_id), "path": path}
    return DamagedError(error.what, remedy=error.remedy, **{"cause": error.what, **facts})


def _unflushed_source(manifest: RegionManifest, span: WalSpan, rows: pa.Table | None) -> GenerationSource:
    return GenerationSource(manifest.region_id, manifest.current_generation, SourceKind.WAL, rows=rows, wal=span)


def wal_suffix(store: ObjectStore, manifest: RegionManifest) -> str:
    """Return the suffix of a region's unflushed WAL entries.

    Regions of the lance codec are always SEALED (decision 0002), but Lance may also seal its own.
    """
    if manifest.status is not RegionStatus.SEALED:
        return ARROW_WAL_SUFFIX
    first = wal_entry_path(manifest.region_id, manifest.replay_after_wal_id + 1, ARROW_WAL_SUFFIX)
    return LANCE_WAL_SUFFIX if store.head(first) is None else ARROW_WAL_SUFFIX


def _ahead(regions: Iterable[ObservedRegion], state: TableState) -> dict[RegionId, DamagedRegion]:
    """Return the regions whose next generation is recorded as merged: they began again, and hide behind that."""
    if state.details is None:
        return {}
    found = {}
    for manifest in (region.manifest for region in regions):
        merged, region_id = state.details.merged_generation(manifest.region_id), manifest.region_id
        if merged >= manifest.current_generation:
            cause = (
                f"generation {merged} is recorded as merged, and the region's next one is {manifest.current_generation}"
            )
            error = DamagedError(
                "a region has fewer generations than are recorded as merged",
                remedy="run `memwal merge`, which freezes the table, and then `memwal thaw` to decide what it is",
                region_id=str(region_id),
                path=manifest_path(region_id, manifest.version),
                cause=cause,
            )
            found[region_id] = DamagedRegion(region_id, error, manifest)
    return found


def _gaps(regions: Iterable[ObservedRegion], state: TableState) -> dict[RegionId, DamagedRegion]:
    """Return the regions with a generation that is neither merged nor recorded: its rows are nowhere.

    No race looks like this: what was collected before a manifest was read is merged in the base table read after it.
    """
    if state.details is None:
        return {}
    found = {}
    for manifest in (region.manifest for region in regions):
        merged, region_id = state.details.merged_generation(manifest.region_id), manifest.region_id
        missing = next(missing_generations(manifest, merged), None)
        if missing:
            error = DamagedError(
                "a generation of a region is neither merged nor recorded",
                remedy="if the table was copied while it was written to, copy it again; otherwise follow "
                "docs/runbooks/generation-hole.md",
                region_id=str(region_id),
                path=manifest_path(region_id, manifest.version),
                cause=f"generation {missing.start} is missing, and the merge progress is {merged}",
            )
            found[region_id] = DamagedRegion(region_id, error, manifest)
    return found


def _doubted(regions: Iterable[ObservedRegion], doubts: Doubts) -> dict[RegionId, DamagedRegion]:
    """Return the regions that are not what they seem to be."""
    manifests = {region.manifest.region_id: region.manifest for region in regions}
    return {each: DamagedRegion(each, error, manifests[each]) for each, error in doubts.regions.items()}


def in_one_table(rows: Sequence[pa.Table], region_id: RegionId) -> pa.Table:
    """Return the rows of WAL entries together.

    Raises:
        InvalidRequestError: They have two schemas.
    """
    schema = rows[-1].schema.remove_metadata()
    if any(not same_columns(part.schema, schema) for part in rows):
        raise InvalidRequestError(
            "the WAL holds rows of two schemas: the region changed writers while the table changed its schema",
            remedy="flush the region by opening a writer for it, or read with consistency `latest`",
            region_id=str(region_id),
        )
    return pa.Table.from_arrays(pa.concat_tables(rows).columns, schema=schema)
