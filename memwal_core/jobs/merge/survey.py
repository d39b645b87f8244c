"""Read what a merge plan needs: region manifests first, then the base table."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

from memwal_core.base_table import BaseTable, TableState, named_regions, regions_at_rest
from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.commit.joined_upsert import join_obstacle
from memwal_core.base_table.history.fields import Renamings
from memwal_core.errors import MemwalError
from memwal_core.flushed.read import MergeTarget
from memwal_core.flushed.read.diagnosis import diagnose_generation
from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.format.paths import generation_path
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.plan import Defect, MergeSurvey, SurveyedGeneration, SurveyedRegion
from memwal_core.jobs.merge.read.inspection import inspect_generation
from memwal_core.jobs.merge.read.opened import OpenedGenerations
from memwal_core.jobs.merge.read.suspects import Suspects
from memwal_core.region import FlushedGeneration, ManifestStore, RegionManifest
from memwal_core.region.census import MANY_REGIONS, Census, CensusTaker, DamagedRegion
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.storage.concurrent import at_most, map_concurrently, run_two
from memwal_core.storage.protocol import ObjectStore

_log = logging.getLogger(__name__)

_FRESH_S = 600.0
"""So long no manifest is old enough for its successor to be deleted already."""


class MergeSurveyor:
    """Reads the state of one table, pass after pass.

    What it learnt about a flushed MemTable is kept while the base schema stays the same, because flushed
    MemTables do not change; everything else is read again each time. ``opened`` is shared with the reader of
    rows in this process.
    """

    def __init__(
        self,
        table: BaseTable,
        store: ObjectStore,
        manifests: ManifestStore,
        concurrency: int,
        opened: OpenedGenerations | None = None,
        find_suspects: Callable[[], Suspects] = Suspects,
    ) -> None:
        self._opened = opened if opened is not None else OpenedGenerations(store.storage_options, most=0)
        self._table = table
        self._store = store
        self._manifests = manifests
        self._concurrency = concurrency
        self._known: dict[tuple[int, str], SurveyedGeneration] = {}
        self._condemned: dict[tuple[RegionId, int], str] = {}
        self._find_suspects = find_suspects
        self._suspects: Suspects | None = None
        self._damaged: set[str] = set()
        self._known_for: MergeTarget | None = None
        self._seen: tuple[Census, float] | None = None
        self._forgetful = False

    def survey(
        self, regions: Collection[RegionId] | None = None, made: TableState | None = None
    ) -> tuple[MergeSurvey, TableState]:
        """Read manifests, the base version, and then the metadata of unmerged generations of some or all regions.

        In the other order, a merge and a trim between the reads would make a merged generation look lost.

        Args:
            regions: All if None.
            made: The version that this run has just made. Then one request per manifest tells whether it is still
                the newest, and the survey before holds if all are.
        """
        census, state = self._read(made)
        progress = self._table.require_mem_wal(state)
        manifests = census.manifests
        require_no_blobs(state.schema, "merge")
        target = merge_target(state)
        if target != self._known_for:
            self._known, self._known_for = {}, target
        unmerged = [
            (manifest.region_id, flushed)
            for manifest in manifests
            if regions is None or manifest.region_id in regions
            for flushed in manifest.flushed_generations
            if flushed.generation > progress.merged_generation(manifest.region_id)
        ]
        self._suspect(manifests, progress)
        renamings = Renamings(self._table, state.version)
        inspected, quarantined = run_two(
            self._store.kind,
            lambda: map_concurrently(lambda each: self._inspect(*each, target, renamings), unmerged, self._concurrency),
            QuarantineStore(self._store).by_region if unmerged else dict,
        )
        by_region: dict[RegionId, list[SurveyedGeneration]] = {}
        for (region_id, _), generation in zip(unmerged, inspected, strict=True):
            by_region.setdefault(region_id, []).append(generation)
        found = tuple(
            _surveyed(
                manifest,
                progress.merged_generation(manifest.region_id),
                by_region.get(manifest.region_id, []),
                quarantined.get(manifest.region_id, {}),
            )
            for manifest in manifests
        )
        damaged = tuple(_damaged(each, progress.merged_generation(region)) for region, each in census.damaged.items())
        obstacle = join_obstacle(target.schema, target.key)
        return MergeSurvey(self._table.uri, state.version, (*found, *damaged), bool(target.key), obstacle), state

    def _read(self, made: TableState | None) -> tuple[Census, TableState]:
        if made is not None and self._seen is not None and self._still_newest(*self._seen):
            self._table.note(made)
            return self._seen[0], made
        began = self._table.clock.monotonic()
        taker = CensusTaker(self._store, self._manifests, self._concurrency)
        census = taker.take((), self._at_rest)
        state = self._table.state()
        census = census.with_known(taker, *named_regions(self._table, state))
        self._seen = census, began
        return census, state

    def _at_rest(self, regions: int) -> Mapping[RegionId, RegionManifest]:
        if regions <= MANY_REGIONS or self._forgetful:
            return {}
        return regions_at_rest(self._table, self._table.state())

    def _still_newest(self, census: Census, began: float) -> bool:
        """Tell whether the regions are the same, and the manifests that were read still the newest."""
        if census.damaged or self._table.clock.monotonic() - began > _FRESH_S:
            return False

        def same_regions() -> bool:
            return frozenset(self._manifests.region_ids()) == census.region_ids

        read = [each for each in census.manifests if each.region_id not in census.unread]
        checks: list[Callable[[], bool]] = [
            same_regions,
            *(partial(self._manifests.is_newest, each) for each in read),
        ]
        limit = at_most(self._store.kind, len(checks), self._concurrency)
        return all(map_concurrently(lambda check: check(), checks, limit))

    def condemn(self, region_id: RegionId, generation: int, evidence: str) -> None:
        """Count a generation as damaged in all later surveys, because its files proved to be so when rows were read."""
        self._condemned[region_id, generation] = evidence

    @property
    def suspects(self) -> tuple[str, ...]:
        """Directories of unmerged flushed MemTables that the next run decodes elsewhere before it reads them."""
        return tuple(sorted(self._damaged))

    def _suspect(self, manifests: Collection[RegionManifest], progress: MemWalIndexDetails) -> None:
        """Find out which generations may end this process, if there are any to read."""
        waiting = {
            flushed.path
            for manifest in manifests
            for flushed in manifest.flushed_generations
            if flushed.generation > progress.merged_generation(manifest.region_id)
        }
        if waiting and self._suspects is None:
            self._suspects = self._find_suspects()
            self._damaged |= self._suspects.directories
            if self._suspects.everything:
                _log.warning(
                    "an earlier run ended without a report: what it may have read is decoded apart first [table=%s]",
                    self._table.uri,
                )
        self._damaged &= waiting

    def forget(self) -> None:
        """Read every region and inspect every flushed MemTable again in later surveys."""
        self._known, self._seen = {}, None
        self._forgetful = True
        self._opened.forget()

    def _inspect(
        self, region_id: RegionId, flushed: FlushedGeneration, target: MergeTarget, renamings: Renamings
    ) -> SurveyedGeneration:
        uri = self._store.uri_of(generation_path(region_id, flushed.path))
        condemned = self._condemned.get((region_id, flushed.generation))
        if condemned is not None:
            self._damaged.add(flushed.path)
            return SurveyedGeneration(flushed.generation, uri, 0, 0, defect=Defect.DAMAGED, evidence=condemned)
        known = self._known.get((flushed.generation, uri))
        if known is None:
            known = self._inspected(region_id, flushed, uri, target, renamings)
            if known.defect is None:
                self._known[flushed.generation, uri] = known
        return known

    def _inspected(
        self, region_id: RegionId, flushed: FlushedGeneration, uri: str, target: MergeTarget, renamings: Renamings
    ) -> SurveyedGeneration:
        """Inspect a generation; the files of one that cannot be opened or mapped say why."""
        if self._suspects is not None and flushed.path in self._suspects:
            self._damaged.discard(flushed.path)
            if found := diagnose_generation(self._store, region_id, flushed.path):
                self.condemn(region_id, flushed.generation, "; ".join(map(str, found)))
                return self._inspect(region_id, flushed, target, renamings)
        try:
            known = inspect_generation(flushed, uri, target, self._opened.look, renamings)
            if known.defect is None:
                return known
            found = diagnose_generation(self._store, region_id, flushed.path)
        except MemwalError as error:
            found = diagnose_generation(self._store, region_id, flushed.path)
            if not found:
                raise
            known = SurveyedGeneration(flushed.generation, uri, 0, 0, Defect.DAMAGED, str(error))
        if not found:
            return known
        defect = Defect.MISSING if known.defect is Defect.MISSING else Defect.DAMAGED
        return replace(known, defect=defect, evidence="; ".join(map(str, found)))


def merge_target(state: TableState) -> MergeTarget:
    """Return what rows must look like to be merged into a version."""
    return MergeTarget.of(state, state.merge_key())


def _surveyed(
    manifest: RegionManifest, merged: int, generations: list[SurveyedGeneration], quarantined: Mapping[int, Quarantined]
) -> SurveyedRegion:
    return SurveyedRegion(
        region_id=manifest.region_id,
        manifest_version=manifest.version,
        current_generation=manifest.current_generation,
        merged=merged,
        generations=tuple(generations),
        quarantined={number: "; ".join(entry.reasons) for number, entry in quarantined.items()},
    )


def _damaged(region: DamagedRegion, merged: int) -> SurveyedRegion:
    return SurveyedRegion(region.region_id, 0, merged + 1, merged, (), damage=region.evidence)
