"""Flushing a region whose writer is gone: claim, replay, flush, give back."""

from __future__ import annotations

from dataclasses import dataclass

from memwal_core.base_table import BaseTable
from memwal_core.failpoints import NO_FAILPOINTS, Failpoint, Failpoints
from memwal_core.ids import RegionId
from memwal_core.region import FlushedGeneration, ManifestStore
from memwal_core.writer.region_writer import RegionWriter

REGION_CLAIMED = Failpoint("flush_region.claimed")
REGION_FLUSHED = Failpoint("flush_region.flushed")


@dataclass(frozen=True, slots=True)
class RegionFlush:
    """What became of a region.

    Attributes:
        epoch: The newest one that was claimed; it is released again.
        generations: What was flushed, oldest first; empty if no row waited.
    """

    region_id: RegionId
    epoch: int
    replayed_entries: int
    generations: tuple[FlushedGeneration, ...]

    @property
    def rows(self) -> int:
        """Rows flushed; where no row was copied, older duplicates of a key count, too."""
        return sum(each.physical_rows or 0 for each in self.generations)


def flush_region(
    table: BaseTable,
    region_id: RegionId,
    *,
    expected_epoch: int | None = None,
    with_fence: bool = False,
    failpoints: Failpoints = NO_FAILPOINTS,
) -> RegionFlush:
    """Turn all rows of a region's WAL into flushed MemTables, as a writer that is opened and closed at once.

    This claims the region, which **fences its writer if there is one**: that writer loses no acknowledged row, but
    must be opened again. The region is released afterwards, so that the next writer may begin at once. Killed at any
    moment, it leaves the rows in the WAL or in a recorded generation, and may be repeated.

    Args:
        table: The base table.
        region_id: The region, of either codec.
        expected_epoch: Claim only from the writer of this epoch; from any if None.
        with_fence: See that older claims write nothing any more, not even rows that they cannot acknowledge.
        failpoints: Hit after the claim and after the flush, and as for ``RegionWriter.open``.

    Raises:
        ConflictError: Another process claimed the region first, or kept changing its manifest. Look again.
        FencedError: Another writer claimed the region meanwhile, and will replay the rows.
        CorruptionError: The WAL has a hole or an unreadable entry. Nothing was changed but the epoch.
        InvalidRequestError: The table or region cannot be written.
        UnavailableError: Storage failed; rows that were not flushed are still in the WAL. Call again.
        CommitUnknownError: Storage did not answer. Call again.
    """
    settings = table.settings
    manifests = ManifestStore(table.store, table.ids, settings=settings.storage)
    before = manifests.load(region_id)
    # Without threads each step happens when it is its turn, and its error is raised here.
    writing = settings.writer.model_copy(update={"background_flush": False})
    table = table.with_settings(settings.model_copy(update={"writer": writing}))
    with RegionWriter.open(table, region_id, failpoints=failpoints, expected_epoch=expected_epoch) as writer:
        failpoints.hit(REGION_CLAIMED)
        if with_fence:
            writer.write_fence()
        writer.flush()
        failpoints.hit(REGION_FLUSHED)
        after = writer.view().manifest
        replayed = writer.stats().replayed_entries
    flushed = tuple(each for each in after.flushed_generations if each.generation >= before.current_generation)
    return RegionFlush(region_id, writer.writer_epoch, replayed, flushed)
