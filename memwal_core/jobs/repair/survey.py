"""Find what is damaged, and what it can be repaired from."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from memwal_core.base_table import BaseTable, TableState, named_regions
from memwal_core.base_table.blobs import require_no_blobs
from memwal_core.base_table.history.torn import TornVersions, find_torn_versions
from memwal_core.errors import CorruptionError, InvalidRequestError
from memwal_core.flushed.read.contents import check_contents
from memwal_core.flushed.read.diagnosis import diagnose_generation
from memwal_core.ids import RegionId
from memwal_core.jobs.context import OpenTable, Progress, unwatched
from memwal_core.jobs.repair.duplicates import find_duplicates
from memwal_core.jobs.repair.plan import DamagedGeneration, DamagedWal, RepairState, TornTable
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.sources import RowSources, SourceFinder
from memwal_core.jobs.repair.wal import damaged_entries
from memwal_core.region import RegionManifest
from memwal_core.region.census import Census, CensusTaker
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.writer.layout import TableLayout

_AT_ONCE = 4
"""Generations read at the same time."""
_MOST_MISSING = 1000
"""Missing generations of a region that are looked for; more than that is a damaged counter."""


class RepairSurveyor:
    """Looks at one table. Reads only.

    Args:
        request: Names the regions to look at, and what may be given up.
    """

    def __init__(self, opened: OpenTable, request: RepairRequest, progress: Progress = unwatched) -> None:
        """Keep the parts; nothing is read."""
        self._opened = opened
        self._wanted = frozenset(request.regions)
        self._losses = request.losses
        self._progress = progress

    def torn(self) -> TornVersions:
        """Look at the newest manifests of the base table."""
        return find_torn_versions(self._opened.base.store)

    def survey(self, *, duplicates: bool) -> RepairState:
        """Look at the base table's newest manifest, then at every generation that is not merged.

        Args:
            duplicates: Also count the keys of the base table.

        Raises:
            InvalidRequestError: The table has no MemWAL index, its key cannot be used, or it has no region or
                generation that the request names.
        """
        uri = self._opened.uri
        torn = self.torn()
        if torn.torn:
            problems = {each.path: each.problem for each in torn.torn}
            return RepairState(uri, TornTable(problems, torn.newest_whole))
        opened = self._opened
        taker = CensusTaker(self.base.store, opened.manifests, opened.settings.storage.concurrency)
        record = opened.freezes.recent()
        census = taker.take(record.memory.regions if record is not None else ())
        state = self.base.state()
        self.base.require_mem_wal(state)
        census = census.with_known(taker, *named_regions(self.base, state))
        self._refuse_unknown(census)
        manifests = [each for each in census.manifests if self._is_wanted(each.region_id)]
        damaged = {region_id: each for region_id, each in census.damaged.items() if self._is_wanted(region_id)}
        unreadable = {region_id: each.evidence for region_id, each in damaged.items() if not each.is_gone}
        vanished = {region_id: each.evidence for region_id, each in damaged.items() if each.is_gone}
        require_no_blobs(state.schema, "repair")
        found = self.damaged(manifests, state)
        doubled = find_duplicates(self.base, state).summary() if duplicates and state.merge_key() else None
        wals = self.damaged_wals(manifests, unreadable)
        return RepairState(uri, None, tuple(found), wals, doubled, unreadable, vanished)

    @property
    def base(self) -> BaseTable:
        """The base table."""
        return self._opened.base

    def damaged(self, manifests: Collection[RegionManifest], state: TableState) -> list[DamagedGeneration]:
        """Read every unmerged generation of some regions in full; return those that cannot be read."""
        details = self.base.require_mem_wal(state)
        wanted = [
            (manifest, generation)
            for manifest in manifests
            for generation in _unmerged(manifest, details.merged_generation(manifest.region_id))
        ]
        finder = self.finder(state)
        done = 0

        def examine(each: tuple[RegionManifest, int]) -> DamagedGeneration | None:
            nonlocal done
            found = self._examine(*each, finder)
            done += 1
            self._progress("generations read", done, len(wanted))
            return found[0] if found is not None else None

        # Each takes the memory of its rows.
        found = map_concurrently(examine, wanted, min(_AT_ONCE, self._opened.settings.storage.concurrency))
        return [each for each in found if each is not None]

    def damaged_wals(
        self, manifests: Collection[RegionManifest], unreadable: dict[RegionId, str]
    ) -> tuple[DamagedWal, ...]:
        """Read every entry that no flush has taken; a region whose manifest is wrong about them is ``unreadable``."""
        found = []
        for number, manifest in enumerate(manifests):
            try:
                entries = damaged_entries(self.base.store, manifest)
            except CorruptionError as error:
                unreadable[manifest.region_id] = str(error)
                continue
            if entries:
                found.append(DamagedWal(manifest.region_id, entries))
            self._progress("WALs read", number + 1, len(manifests))
        return tuple(found)

    def finder(self, state: TableState) -> SourceFinder:
        """Return what looks for the rows of damaged generations."""
        opened = self._opened
        layout = TableLayout.of(state)
        return SourceFinder(
            opened.base, opened.manifests, layout, state.column_ids, opened.settings.storage.concurrency
        )

    def damaged_generation(
        self, manifest: RegionManifest, generation: int, state: TableState
    ) -> tuple[DamagedGeneration, RowSources] | None:
        """Look at one generation again, and read what is left of its rows; None if it is sound, or merged by now."""
        if generation <= self.base.require_mem_wal(state).merged_generation(manifest.region_id):
            return None
        return self._examine(manifest, generation, self.finder(state))

    def _examine(
        self, manifest: RegionManifest, generation: int, finder: SourceFinder
    ) -> tuple[DamagedGeneration, RowSources] | None:
        path = _recorded_path(manifest, generation)
        if path is None:
            damage: tuple[str, ...] = ("the region manifest does not record it",)
        else:
            found = diagnose_generation(self.base.store, manifest.region_id, path)
            damage = tuple(f"{each.path}: {each.cause}" for each in found)
        if not damage:
            return self._foreign(manifest, generation)
        sources = finder.find(manifest, generation)
        return _described(manifest, generation, damage, sources), sources

    def _foreign(self, manifest: RegionManifest, generation: int) -> tuple[DamagedGeneration, RowSources] | None:
        """Find a generation whose WAL entries are sound and not those that were flushed; nothing can be made of them.

        That is what mixing the directories of two copies of a table leaves.
        """
        [recorded] = [each for each in manifest.flushed_generations if each.generation == generation]
        if recorded.wal_digest is None:
            return None
        try:
            check_contents(self.base.store, manifest.region_id, recorded)
        except CorruptionError as error:
            nothing = RowSources(None, None, None, is_complete=False, evidence=error.remedy)
            return _described(manifest, generation, (error.what,), nothing), nothing
        return None

    def _refuse_unknown(self, census: Census) -> None:
        named = self._wanted | self._losses.regions
        unknown = sorted(str(region_id) for region_id in named - census.region_ids)
        if unknown:
            raise InvalidRequestError(
                "the table has no such region",
                remedy="choose from `memwal status`",
                unknown=unknown,
                known=len(census.region_ids),
            )
        flushed = {each.region_id: each.current_generation - 1 for each in census.manifests}
        never = sorted(
            f"{region_id}:{generation}"
            for region_id, generation in self._losses.generations
            if generation > flushed.get(region_id, generation)
        )
        if never:
            raise InvalidRequestError(
                "a loss is accepted of generations that were never flushed",
                remedy="name those that a run without the option names",
                unknown=never,
            )

    def _is_wanted(self, region_id: RegionId) -> bool:
        return not self._wanted or region_id in self._wanted


def _unmerged(manifest: RegionManifest, merged: int) -> Iterator[int]:
    """Yield the flushed generations that are not merged, whether they are recorded or not."""
    recorded = {each.generation for each in manifest.flushed_generations if each.generation > merged}
    first = max(merged + 1, manifest.current_generation - _MOST_MISSING)
    yield from sorted(recorded | set(range(first, manifest.current_generation)))


def _recorded_path(manifest: RegionManifest, generation: int) -> str | None:
    return next((each.path for each in manifest.flushed_generations if each.generation == generation), None)


def _described(
    manifest: RegionManifest, generation: int, damage: tuple[str, ...], sources: RowSources
) -> DamagedGeneration:
    recorded = next((each for each in manifest.flushed_generations if each.generation == generation), None)
    return DamagedGeneration(
        region_id=manifest.region_id,
        generation=generation,
        path=recorded.path if recorded is not None else None,
        damage=damage,
        is_complete=sources.is_complete,
        evidence=sources.evidence,
        rows_left=sources.rows.num_rows if sources.rows is not None else 0,
        rows=recorded.physical_rows if recorded is not None else None,
    )
