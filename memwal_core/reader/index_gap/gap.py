"""Which flushed MemTables replace base fragments that an index has not caught up with.

Merged rows are in the base table before its indexes cover them. While the flushed MemTables they came from are still
recorded and have such an index themselves, a search uses those and skips the base fragments that hold the same rows.
Each index is decided separately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from memwal_core.format.memwal_index import MemWalIndexDetails
from memwal_core.ids import RegionId
from memwal_core.reader.plan.read_plan import ReadPlan, RegionRead
from memwal_core.reader.plan.sources import GenerationSource


@dataclass(frozen=True, slots=True)
class IndexGap:
    """How far one index of the base table lags behind.

    Attributes:
        standing_in: Region -> flushed MemTables from its catch-up to its merge progress, newest first.
        uncovered: Regions that lag and have an unusable flushed MemTable: the unindexed part of the base table is
            scanned.
    """

    index: str
    standing_in: Mapping[RegionId, tuple[GenerationSource, ...]]
    uncovered: tuple[RegionId, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no flushed MemTable stands in."""
        return not self.standing_in


def plan_gap(plan: ReadPlan, index: str, is_usable: Callable[[GenerationSource], bool]) -> IndexGap:
    """Decide which flushed MemTables stand in for an index.

    An index without a catch-up entry has caught up with nothing (decision 0005). ``is_usable`` says whether a flushed
    MemTable exists and has an index on the same column.
    """
    details = plan.state.details if plan.state.details is not None else MemWalIndexDetails()
    caught_up = details.index_catchup.get(index, {})
    standing_in: dict[RegionId, tuple[GenerationSource, ...]] = {}
    uncovered = []
    for region in plan.regions:
        first = caught_up.get(region.region_id, 0) + 1
        if first > region.merged:
            continue
        found = _gap_of(region, first)
        if len(found) == region.merged - first + 1 and all(is_usable(each) for each in found):
            standing_in[region.region_id] = found
        else:
            uncovered.append(region.region_id)
    return IndexGap(index, MappingProxyType(standing_in), tuple(uncovered))


def _gap_of(region: RegionRead, first: int) -> tuple[GenerationSource, ...]:
    return tuple(each for each in region.merged_generations if each.generation >= first)
